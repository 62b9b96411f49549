"""Lossless bf16: Assay's packed12 against ZipNN on the CPU, and against DFloat11's size.

The tensors are N(0, 0.02) and, flattened one after another, the matrices of a model. Both programs compress the
same bytes, one thread each, turn by turn, each twice of which the second counts; medians of CPU time and their
ratios, GB/s of bf16. What a program allocates for its result is in its time, but for Assay's decode and the plain
copy beside it, which write to memory they have. Both must restore every byte: exit 1 when one differs.

DFloat11 decodes on a GPU only; its encoder, in Python, runs here and gives the size. Left out when not installed.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install -r bench/peers/requirements-torch.txt
    /tmp/peers/bin/pip install --no-deps dfloat11==0.5.0 dahuffman==0.4.2 tqdm==4.70.1
    /tmp/peers/bin/python bench/peers/zipnn_bf16.py build/dev/bench/assay_peer
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import pathlib
import statistics
import tempfile

import torch
from safetensors.torch import load_file, save_file
from zipnn import ZipNN

from assay_peer import AssayPeer, cpu_seconds

COLS = 128  # packed12 takes a tensor as one run of values: its shape changes nothing
DEMO = pathlib.Path(__file__).parents[2] / "data/minilm-slice/model.safetensors"


def matrices(path):
    flat = [tensor.to(torch.bfloat16).reshape(-1)
            for name, tensor in sorted(load_file(path).items()) if tensor.dim() == 2]
    values = torch.cat(flat)
    return values[:values.numel() // COLS * COLS].reshape(-1, COLS)


def dfloat11_encoder():
    """The module of its encoder, past the package, which needs a GPU to import; None when not installed."""
    package = importlib.util.find_spec("dfloat11")
    if package is None:
        return None
    file = pathlib.Path(package.submodule_search_locations[0]) / "dfloat11_utils.py"
    spec = importlib.util.spec_from_file_location("dfloat11_utils", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dfloat11_bytes(dfloat11, values):
    """Bytes of its tensors: codes, sign and mantissa, positions, gaps and tables."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _, counter = dfloat11.get_codec(values)
        codec, _, table = dfloat11.get_32bit_codec(counter)
        # 8 bytes a thread, 512 threads a block: the constants of its dfloat11.py
        planes = dfloat11.encode_weights([values.reshape(-1)], codec, 8, 512)[:4]
        planes = [*planes, dfloat11.get_luts(table)]
    return sum(plane.numel() * plane.element_size() for plane in planes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="build/dev/bench/assay_peer")
    parser.add_argument("--size", type=int, default=4096, help="N(0, 0.02): size × size values")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default=DEMO, help="safetensors file; default: the demo model")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    normal = torch.randn((arguments.size, arguments.size), generator=torch.manual_seed(arguments.seed))
    tensors = {f"N(0, 0.02), seed {arguments.seed}": (normal * 0.02).to(torch.bfloat16),
               "matrices of " + str(pathlib.Path(arguments.model).parent.name): matrices(arguments.model)}
    peer = AssayPeer(arguments.program)
    peer.ask("threads", 1)
    print(f"zipnn {importlib.metadata.version('zipnn')}; assay on {peer.ask('target')}; one thread, "
          f"{arguments.rounds} rounds in turn, medians of CPU time, GB/s of bf16")
    dfloat11 = dfloat11_encoder()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for title, values in tensors.items():
            source = folder / "values.safetensors"
            save_file({"w": values}, source)
            peer.ask("load", source, "w")
            original = values.view(torch.int16).numpy().tobytes()
            zipnn = ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=1)
            times = {key: [] for key in ("encode", "zipnn encode", "decode", "zipnn decode", "copy")}
            packed = {}
            for _ in range(arguments.rounds):
                # ZipNN reorders the bytes in place: a fresh copy for each call, made outside the time.
                for key, action in {
                        "encode": lambda: peer.cpu_seconds("encode", "packed12"),
                        "zipnn encode": lambda: cpu_seconds(
                            lambda data=bytearray(original): packed.update(zipnn=zipnn.compress(data))),
                        "decode": lambda: peer.cpu_seconds("decode", "BF16"),
                        "zipnn decode": lambda: cpu_seconds(
                            lambda: packed.update(restored=zipnn.decompress(packed["zipnn"]))),
                        "copy": lambda: peer.cpu_seconds("copy")}.items():
                    action()  # the other program has emptied the caches
                    times[key].append(action())
            peer.ask("dump-planes", folder / "planes")
            peer.ask("dump", folder / "decoded")
            sizes = {"assay": (folder / "planes").stat().st_size, "zipnn": len(packed["zipnn"])}
            if dfloat11 is not None:
                sizes["dfloat11"] = dfloat11_bytes(dfloat11, values)
            restored = {"assay": (folder / "decoded").read_bytes(), "zipnn": bytes(packed["restored"])}

            print(f"\n{title}, {len(original)} bytes{'':<10}{'assay':>8}{'zipnn':>8}{'ratio':>8}{'of a copy':>11}")
            rate = {key: len(original) / 1e9 / statistics.median(samples) for key, samples in times.items()}
            for what in ("encode", "decode"):
                print(f"    {what:<40}{rate[what]:>8.2f}{rate['zipnn ' + what]:>8.2f}"
                      f"{rate[what] / rate['zipnn ' + what]:>7.1f}×{rate[what] / rate['copy']:>11.2f}")
            for name, size in sizes.items():
                print(f"    {name}: {size} bytes, {size / len(original):.4f} of bf16, "
                      f"{16 * size / len(original):.2f} bits a value")
            for name, found in restored.items():
                different = sum(a != b for a, b in zip(found, original)) if found != original else 0
                different += abs(len(found) - len(original))
                wrong += different
                print(f"    {name} restores all but {different} bytes")
    peer.close()
    raise SystemExit(wrong != 0)


if __name__ == "__main__":
    main()
