"""ggml's block types: Assay against ggml's own library on the CPU.

1. Bits: Assay and ggml encode the same N(0, 0.02) values and decode their blocks. Both must agree
   bit for bit.
2. Time: ggml_quantize_chunk against Assay's encode, then dequantize_row_* against its decode, one
   thread each, turn by turn, each twice of which the second counts, into memory that is kept;
   medians of CPU time and their ratios. GB/s of f32.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install -r bench/peers/requirements.txt
    /tmp/peers/bin/python bench/peers/ggml_blocks.py build/dev/bench/assay_peer
    … ggml_blocks.py PROGRAM --library libggml-base.so     # another build of ggml
"""

import argparse
import array
import ctypes
import importlib.util
import json
import mmap
import pathlib
import random
import statistics
import tempfile

from assay_peer import AssayPeer, cpu_seconds

# name, id, values and bytes of a block, symbol of the decoder
TYPES = [
    ("q4_0", 2, 32, 18, "q4_0"), ("q4_1", 3, 32, 20, "q4_1"), ("q5_0", 6, 32, 22, "q5_0"),
    ("q5_1", 7, 32, 24, "q5_1"), ("q8_0", 8, 32, 34, "q8_0"), ("q2_k", 10, 256, 84, "q2_K"),
    ("q3_k", 11, 256, 110, "q3_K"), ("q4_k", 12, 256, 144, "q4_K"), ("q5_k", 13, 256, 176, "q5_K"),
    ("q6_k", 14, 256, 210, "q6_K"), ("iq4_nl", 20, 32, 18, "iq4_nl"),
    ("iq4_xs", 23, 256, 136, "iq4_xs"), ("tq1_0", 34, 256, 54, "tq1_0"),
    ("tq2_0", 35, 256, 66, "tq2_0"), ("mxfp4", 39, 32, 17, "mxfp4"),
    ("nvfp4", 40, 64, 36, "nvfp4"), ("q1_0", 41, 128, 18, "q1_0"), ("q2_0", 42, 64, 18, "q2_0"),
]


def wheel_library():
    package = importlib.util.find_spec("libggml")
    if package is None:
        raise SystemExit("no libggml: pip install libggml-python, or --library")
    folder = pathlib.Path(package.submodule_search_locations[0])
    return next(folder.glob("**/libggml-base.so*"))


def write_safetensors(path, values, rows, cols):
    header = json.dumps({"w": {"dtype": "F32", "shape": [rows, cols],
                               "data_offsets": [0, 4 * rows * cols]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + values.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="build/dev/bench/assay_peer")
    parser.add_argument("--library", dest="path", metavar="PATH", help="libggml-base.so; default: of the package libggml-python")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--types", default=",".join(name for name, *_ in TYPES))
    arguments = parser.parse_args()
    rows, cols = arguments.rows, arguments.cols

    library = arguments.path or wheel_library()
    ggml = ctypes.CDLL(str(library))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                                         ctypes.c_void_p]
    ggml.ggml_quantize_init(2)  # fills ggml's table of f16 values

    generator = random.Random(1)
    values = array.array("f", (generator.gauss(0, 0.02) for _ in range(rows * cols)))
    source = (ctypes.c_float * len(values)).from_buffer(values)
    # Aligned and on large pages, as Assay's tensors lie.
    memory = mmap.mmap(-1, 4 * len(values))
    memory.madvise(mmap.MADV_HUGEPAGE)
    decoded = (ctypes.c_float * len(values)).from_buffer(memory)
    gigabytes = 4 * len(values) / 1e9

    peer = AssayPeer(arguments.program)
    peer.ask("threads", 1)
    print(f"{pathlib.Path(library).resolve().name}; assay on {peer.ask('target')}; "
          f"{rows} x {cols} f32, one thread, {arguments.rounds} rounds in turn, medians of CPU time, GB/s of f32")
    print(f"{'':<8}{'encode':>9}{'ggml':>9}{'ratio':>8}{'decode':>11}{'ggml':>9}{'ratio':>8}"
          "   bytes differ")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_safetensors(folder / "w.safetensors", values, rows, cols)
        peer.ask("load", folder / "w.safetensors", "w")
        for name, type_id, block_values, block_bytes, symbol in TYPES:
            if name not in arguments.types.split(","):
                continue
            blocks = ctypes.create_string_buffer(rows * cols // block_values * block_bytes)
            decode = getattr(ggml, "dequantize_row_" + symbol)
            decode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
            times = [[], [], [], []]
            actions = [
                lambda: peer.cpu_seconds("encode", "ggml-" + name),
                lambda: cpu_seconds(lambda: ggml.ggml_quantize_chunk(
                    type_id, source, blocks, 0, rows, cols, None)),
                lambda: peer.cpu_seconds("decode", "F32"),
                lambda: cpu_seconds(lambda: decode(blocks, decoded, rows * cols)),
            ]
            # Encoding apart: a decoder would find the CPU as the longer of two encoders leaves it.
            for first in (0, 2):
                for _ in range(arguments.rounds):
                    for samples, action in zip(times[first:first + 2], actions[first:first + 2]):
                        action()  # the other program has emptied the caches
                        samples.append(action())
            peer.ask("dump-planes", folder / "planes")
            peer.ask("dump", folder / "decoded")
            pairs = [((folder / "planes").read_bytes(), blocks.raw),
                     ((folder / "decoded").read_bytes(), bytes(decoded))]
            different = sum(sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b))
                            for a, b in pairs if a != b)
            wrong += different
            rate = [gigabytes / max(statistics.median(samples), 1e-9) for samples in times]
            print(f"{name:<8}{rate[0]:>9.2f}{rate[1]:>9.2f}{rate[0] / rate[1]:>7.1f}x"
                  f"{rate[2]:>11.2f}{rate[3]:>9.2f}{rate[2] / rate[3]:>7.1f}x   {different}")
    peer.close()
    raise SystemExit(wrong != 0)


if __name__ == "__main__":
    main()
