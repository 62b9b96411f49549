"""Products x[M, K] · W[N, K]^T by Assay and by other programs, turn by turn, on cold weights.

    python3 bench/peers/gemv.py build/dev/bench/assay_peer --shape 1,4096,16384 --threads 1 --rounds 20

Peers: torch bf16 and int4 (torch._weight_int4pack_mm_for_cpu, groups of 64), onnxruntime MatMulNBits (4 bits,
groups of 64, f32 scales; accuracy_level 0: f32 activations, 4: int8), MLX's quantized_matmul on the CPU, and
ggml_mul_mat of libggml-python for --ggml's types (f32 activations in, int8 inside; blocks as in a file, and
"repack": as ggml rearranges some types for this CPU). The wheel is built for AVX2: for the machine's own
instructions build ggml with GGML_NATIVE and name its folder by --ggml-library.
Each is left out when it is not installed. Weights rotate: one comes back after more than --cold MiB of others.
One thread: CPU time of the process; more: wall time, and the fastest tenth beside the median, since nothing
here tells a preempted sample. Packages: requirements-gemv.txt.
"""

import argparse
import ctypes
import importlib.util
import os
import pathlib
import platform
import statistics
import sys
import time

import numpy as np

from assay_peer import AssayPeer

GROUP = 64


def int4_weights(rows, cols, seed):
    """Codes 0..15 [N, K] and a scale for each group: values do not change a product's time."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 16, (rows, cols), dtype=np.uint8)
    scales = random.uniform(0.001, 0.01, (rows, cols // GROUP)).astype(np.float32)
    return codes, scales


def torch_peers(m, k, n, threads):
    import torch

    torch.set_num_threads(threads)
    x = torch.randn(m, k).to(torch.bfloat16)

    def bf16(seed):
        torch.manual_seed(seed)
        w = torch.randn(n, k).to(torch.bfloat16)
        return lambda: torch.nn.functional.linear(x, w)

    def int4(seed):
        codes, scales = int4_weights(n, k, seed)
        packed = torch._convert_weight_to_int4pack_for_cpu(
            torch.from_numpy(codes.astype(np.int32)), 2)
        pairs = torch.from_numpy(np.stack([scales.T, np.zeros_like(scales.T)], -1).copy())
        pairs = pairs.to(torch.bfloat16)
        return lambda: torch._weight_int4pack_mm_for_cpu(x, packed, GROUP, pairs)

    # int4pack: half a byte a weight, a scale and a zero point of bf16 a group.
    version = torch.__version__.split("+")[0]
    return [(f"torch {version} bf16", 2 * n * k, bf16),
            (f"torch {version} int4pack", n * k // 2 + n * k // GROUP * 4, int4)]


def onnxruntime_peers(m, k, n, threads):
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    x = np.random.default_rng(0).standard_normal((m, k)).astype(np.float32)

    def make(level):
        def peer(seed):
            codes, scales = int4_weights(n, k, seed)
            packed = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(n, k // GROUP, GROUP // 2)
            node = helper.make_node(
                "MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft",
                K=k, N=n, bits=4, block_size=GROUP, accuracy_level=level)
            graph = helper.make_graph(
                [node], "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])],
                [numpy_helper.from_array(packed, "b"),
                 numpy_helper.from_array(scales.reshape(-1), "s")])
            model = helper.make_model(graph, ir_version=10, opset_imports=[
                helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return lambda: session.run(None, {"x": x})
        return peer

    version = onnxruntime.__version__
    bytes_read = n * k // 2 + n * k // GROUP * 4
    return [(f"onnxruntime {version} MatMulNBits", bytes_read, make(0)),
            (f"onnxruntime {version} MatMulNBits a8", bytes_read, make(4))]


def mlx_peers(m, k, n, _threads):
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    x = mx.random.normal((m, k)).astype(mx.bfloat16)

    def peer(seed):
        mx.random.seed(seed)
        planes = mx.quantize(mx.random.normal((n, k)).astype(mx.bfloat16), GROUP, 4)
        mx.eval(planes)
        return lambda: mx.eval(mx.quantized_matmul(x, *planes, True, GROUP, 4))

    return [(f"mlx {mx.__version__} affine4g64", n * k // 2 + n * k // GROUP * 4, peer)]


GGML_TYPES = {"q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q8_0": (8, 32, 34),
              "q4_k": (12, 256, 144), "q5_k": (13, 256, 176), "q6_k": (14, 256, 210),
              "iq4_nl": (20, 32, 18), "iq4_xs": (23, 256, 136), "mxfp4": (39, 32, 17)}
# Those that ggml rearranges on x86; its library ends the process when asked for another.
GGML_REPACKED = {"q4_0", "q4_k", "iq4_nl", "mxfp4"}


def ggml_peers(types, library):
    """Products of ggml's graph: one node, `threads` threads, a context for each copy."""
    def peers(m, k, n, threads):
        if library is None:
            package = importlib.util.find_spec("libggml")
            if package is None:
                raise ImportError("no libggml-python")
            folder = next(pathlib.Path(package.submodule_search_locations[0]).glob("**/libggml-cpu.so")).parent
        else:
            folder = pathlib.Path(library)
        base = ctypes.CDLL(str(folder / "libggml-base.so"), ctypes.RTLD_GLOBAL)
        cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"))
        repack_buffers = cpu["_Z35ggml_backend_cpu_repack_buffer_typev"]

        class Params(ctypes.Structure):
            _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

        pointer, count = ctypes.c_void_p, ctypes.c_int64
        for function, result, arguments in [
                (base.ggml_init, pointer, [Params]),
                (base.ggml_new_tensor_2d, pointer, [pointer, ctypes.c_int, count, count]),
                (base.ggml_get_data, pointer, [pointer]),
                (base.ggml_mul_mat, pointer, [pointer, pointer, pointer]),
                (base.ggml_backend_alloc_ctx_tensors_from_buft, pointer, [pointer, pointer]),
                (base.ggml_backend_tensor_set, None, [pointer, pointer, ctypes.c_size_t, ctypes.c_size_t]),
                (repack_buffers, pointer, []), (base.ggml_backend_cpu_buffer_type, pointer, []),
                (base.ggml_new_graph, pointer, [pointer]),
                (base.ggml_build_forward_expand, None, [pointer, pointer]),
                (base.ggml_quantize_chunk, ctypes.c_size_t,
                 [ctypes.c_int, pointer, pointer, count, count, count, pointer]),
                (cpu.ggml_graph_compute_with_ctx, ctypes.c_int, [pointer, pointer, ctypes.c_int])]:
            function.restype, function.argtypes = result, arguments
        cpu.ggml_cpu_init()
        has = [name for name in ("avx2", "avx512", "avx512_vnni")
               if getattr(cpu, f"ggml_cpu_has_{name}")()]
        print(f"ggml built for {' '.join(has)}", file=sys.stderr)

        def of_type(type_id, repack):
            def peer(seed):
                random = np.random.default_rng(seed)
                rows = min(n, 64)  # repeated: values do not change a product's time
                values = (random.standard_normal((rows, k)) * 0.02).astype(np.float32)
                some = np.empty(rows * k * 4, np.uint8)
                size = base.ggml_quantize_chunk(type_id, values.ctypes.data, some.ctypes.data, 0, rows, k, None)
                blocks = np.resize(some[:size], size // rows * n)
                of_weight = base.ggml_init(Params(1 << 20, None, True))
                w = base.ggml_new_tensor_2d(of_weight, type_id, k, n)
                buffers = repack_buffers() if repack else base.ggml_backend_cpu_buffer_type()
                base.ggml_backend_alloc_ctx_tensors_from_buft(of_weight, buffers)
                base.ggml_backend_tensor_set(w, blocks.ctypes.data, 0, blocks.nbytes)
                # Every call takes its work buffer out of the context.
                context = base.ggml_init(Params(96 << 20, None, False))
                x = base.ggml_new_tensor_2d(context, 0, k, m)
                input_values = random.standard_normal((m, k)).astype(np.float32)
                ctypes.memmove(base.ggml_get_data(x), input_values.ctypes.data, input_values.nbytes)
                graph = base.ggml_new_graph(context)
                base.ggml_build_forward_expand(graph, base.ggml_mul_mat(context, w, x))
                return lambda: cpu.ggml_graph_compute_with_ctx(context, graph, threads)
            return peer

        found = []
        for name in types:
            type_id, values, block_bytes = GGML_TYPES[name]
            num_bytes = n * k // values * block_bytes
            found.append((f"ggml {name}", num_bytes, of_type(type_id, False)))
            if name in GGML_REPACKED:
                found.append((f"ggml {name} repack", num_bytes, of_type(type_id, True)))
        return found
    return peers


def cpu_name():
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


class Variant:
    """A named product in `copies` copies; `call(turn)` answers seconds."""

    def __init__(self, name, num_bytes, call):
        self.name = name
        self.num_bytes = num_bytes
        self.call = call
        self.samples = []

    def median_ms(self):
        return statistics.median(self.samples) * 1e3

    def fastest_ms(self):
        return sorted(self.samples)[len(self.samples) // 10] * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assay_peer")
    parser.add_argument("--shape", default="1,4096,16384", help="M,K,N")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cold", type=int, default=640, help="MiB")
    parser.add_argument("--assay", default="bf16,affine4g64,affine4g64:fused-a8,packed12")
    parser.add_argument("--ggml", default="", help="types, separated by commas: q8_0,q4_k")
    parser.add_argument("--ggml-library", help="folder of libggml-base.so and libggml-cpu.so; "
                        "default: of the package libggml-python")
    args = parser.parse_args()
    m, k, n = (int(size) for size in args.shape.split(","))
    wanted = args.assay.split(",")

    found = []
    types = [name for name in args.ggml.split(",") if name]
    for peers in (torch_peers, onnxruntime_peers, mlx_peers, ggml_peers(types, args.ggml_library)):
        try:
            found += peers(m, k, n, args.threads)
        except ImportError as error:
            print(f"left out: {error}", file=sys.stderr)
    # As many copies of each that a round's reads times copies pass --cold.
    per_round = sum(num_bytes for _, num_bytes, _ in found) + len(wanted) * n * k // 2
    copies = (args.cold << 20) // per_round + 2
    one_thread = args.threads == 1
    clock = time.process_time if one_thread else time.perf_counter

    assay = AssayPeer(args.assay_peer)
    assay.ask("threads", args.threads)
    target = assay.ask("target")

    def assay_seconds(*words):
        wall, cpu = assay.ask(*words).split()
        return float(cpu if one_thread else wall)

    variants = [Variant("read", 128 << 20, lambda turn: assay_seconds("read", 128))]
    for spec in wanted:
        _, index, num_bytes, _what = assay.ask("product", spec, m, k, n, copies).split(" ", 3)
        variants.append(Variant(f"assay {spec}", int(num_bytes),
                                lambda turn, index=index: assay_seconds("multiply", index)))
    for name, num_bytes, make in found:
        try:
            calls = [make(seed) for seed in range(copies)]
            calls[0]()
        except Exception as error:  # a package too old for this product, or a CPU
            print(f"left out: {name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue

        def call(turn, calls=calls):
            begin = clock()
            calls[turn % copies]()
            return clock() - begin

        variants.append(Variant(name, num_bytes, call))

    for turn in range(-2, args.rounds):
        for variant in variants:
            seconds = variant.call(turn + 2)
            if turn >= 0:
                variant.samples.append(seconds)
    assay.close()

    read = variants[0].num_bytes / variants[0].median_ms()
    base = variants[1].median_ms()
    print(f"{cpu_name()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, target {target}")
    print(f"M={m} K={k} N={n}, {args.threads} thread{'s' * (not one_thread)}, "
          f"{'CPU' if one_thread else 'wall'} time, {args.rounds} rounds, {copies} copies")
    print(f"{'':<34} {'median ms':>10} {'fastest':>9} {'GB/s':>6} {'of read':>8} {'x ' + wanted[0]:>8}")
    for variant in variants:
        median = variant.median_ms()
        print(f"{variant.name:<34} {median:>10.3f} {variant.fastest_ms():>9.3f} "
              f"{variant.num_bytes / median * 1e-6:>6.1f} {variant.num_bytes / median / read:>8.2f} "
              f"{base / median:>8.2f}")


if __name__ == "__main__":
    main()
