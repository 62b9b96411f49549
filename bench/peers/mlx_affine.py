"""Affine formats: Assay against MLX on the CPU.

1. Bits: Assay encodes N(0, 1) and writes folders in MLX's layout; MLX quantises the same values and
   dequantises the folders. Planes and decoded values must agree bit for bit.
2. Time: mx.quantize and mx.dequantize against Assay's encode and decode, one thread each, turn by
   turn; medians of CPU time and their ratios.

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install -r bench/peers/requirements.txt
    /tmp/peers/bin/python bench/peers/mlx_affine.py build/dev/bench/assay_peer
    /tmp/peers/bin/python bench/peers/mlx_affine.py build/dev/bench/assay_peer --model FOLDER
        the same bits check for a folder that `assay quantize` wrote (first argument: to decode)
"""

import argparse
import json
import pathlib
import statistics
import tempfile

import mlx.core as mx
import numpy as np

from assay_peer import AssayPeer, cpu_seconds

FORMATS = [(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
DTYPES = {"bf16": (mx.bfloat16, "BF16"), "f16": (mx.float16, "F16"), "f32": (mx.float32, "F32")}


def raw(array):
    """The bytes of an mx array as numpy integers."""
    mx.eval(array)
    size = array.dtype.size
    return np.array(array.view({1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[size]))


def check_bits(peer, rows, cols, folder):
    """Planes and decoded bits of every format and dtype; the number of differing elements."""
    different = 0
    compared = 0
    for dtype, (mx_dtype, assay_dtype) in DTYPES.items():
        values = mx.random.normal((rows, cols)).astype(mx_dtype)
        source = folder / f"values-{dtype}.safetensors"
        mx.save_safetensors(str(source), {"layer.weight": values})
        peer.ask("load", source, "layer.weight")
        for bits, group in FORMATS:
            peer.ask("encode", f"affine{bits}g{group}")
            peer.ask("decode", assay_dtype)
            peer.ask("dump", folder / "decoded.bin")
            written = folder / f"{dtype}-{bits}-{group}"
            peer.ask("save", written)

            config = json.loads((written / "config.json").read_text())["quantization"]
            planes = mx.load(str(written / "model.safetensors"))
            ours = [planes[f"layer.{name}"] for name in ("weight", "scales", "biases")]
            theirs = mx.quantize(values, group_size=group, bits=bits)
            decoded = mx.dequantize(
                *ours, group_size=config["group_size"], bits=config["bits"], mode=config["mode"])
            assay_decoded = np.fromfile(folder / "decoded.bin", dtype=raw(decoded).dtype)
            pairs = [(raw(a), raw(b)) for a, b in zip(ours, theirs)]
            pairs.append((raw(decoded).ravel(), assay_decoded))
            for a, b in pairs:
                compared += a.size
                different += int((a != b).sum())
    return compared, different


def check_model(folder):
    """Dequantises every affine module of an MLX folder. Returns name → raw bits, for comparison."""
    folder = pathlib.Path(folder)
    settings = json.loads((folder / "config.json").read_text())["quantization"]
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors.update(mx.load(str(file)))
    decoded = {}
    for name in tensors:
        if not name.endswith(".scales") or name[:-7] + ".biases" not in tensors:
            continue
        path = name[:-7]
        own = settings.get(path, settings)
        own = settings if own is True else own
        decoded[path + ".weight"] = mx.dequantize(
            tensors[path + ".weight"], tensors[name], tensors[path + ".biases"],
            group_size=own["group_size"], bits=own["bits"], mode=own.get("mode", "affine"))
    return decoded


def measure(peer, size, rounds, folder):
    values = mx.random.normal((size, size)).astype(mx.bfloat16)
    source = folder / "large.safetensors"
    mx.save_safetensors(str(source), {"w": values})
    peer.ask("load", source, "w")
    gigabytes = size * size * 2 / 1e9
    print(f"\n{size}×{size} bf16, one thread, {rounds} rounds in turn, medians of CPU time; GB/s of bf16")
    print(f"{'':<17}{'assay':>9}{'mlx':>9}{'ratio':>8}   {'of a copy':>9}")
    for bits in (2, 3, 4, 5, 6, 8):
        planes = mx.quantize(values, group_size=64, bits=bits)
        mx.eval(planes)
        times = {key: [] for key in ("encode", "mx encode", "decode", "mx decode", "copy")}
        for _ in range(rounds):
            times["encode"].append(peer.cpu_seconds("encode", f"affine{bits}g64"))
            times["mx encode"].append(
                cpu_seconds(lambda: mx.eval(mx.quantize(values, group_size=64, bits=bits))))
            times["decode"].append(peer.cpu_seconds("decode", "BF16"))
            times["mx decode"].append(
                cpu_seconds(lambda: mx.eval(mx.dequantize(*planes, group_size=64, bits=bits))))
            times["copy"].append(peer.cpu_seconds("copy"))
        rate = {key: gigabytes / statistics.median(samples) for key, samples in times.items()}
        for what in ("encode", "decode"):
            print(f"affine{bits}g64 {what}{rate[what]:>9.2f}{rate['mx ' + what]:>9.2f}"
                  f"{rate[what] / rate['mx ' + what]:>7.1f}×   {rate[what] / rate['copy']:>9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="build/dev/bench/assay_peer")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", help="MLX folder that assay quantize wrote")
    parser.add_argument("--decoded", help="the folder or file assay dequantize made of it")
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    mx.random.seed(1)

    if arguments.model:
        ours = {}
        path = pathlib.Path(arguments.decoded)
        for file in [path] if path.is_file() else sorted(path.glob("model*.safetensors")):
            ours.update(mx.load(str(file)))
        different = 0
        decoded = check_model(arguments.model)
        for name, values in decoded.items():
            different += int((raw(values) != raw(ours[name])).sum())
        print(f"{arguments.model}: {len(decoded)} affine weights, {different} values differ")
        raise SystemExit(different != 0)

    peer = AssayPeer(arguments.program)
    peer.ask("threads", 1)
    print(f"mlx {mx.__version__} on the CPU; assay on {peer.ask('target')}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        compared, different = check_bits(peer, 48, 768, folder)
        print(f"{len(FORMATS) * len(DTYPES)} folders that assay wrote, {compared} plane elements "
              f"and decoded values against mlx: {different} differ")
        measure(peer, arguments.size, arguments.rounds, folder)
    peer.close()
    raise SystemExit(different != 0)


if __name__ == "__main__":
    main()
