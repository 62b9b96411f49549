"""MX formats and NVFP4: Assay's encoders against torchao's on the CPU.

Codes and scales of N(0, 1) in bf16 must agree bit for bit: exit 1 when one differs. One thread each, turn by turn,
medians of CPU time; torchao as it is and under torch.compile (needs a C++ compiler), whose bits decide no exit:
compiled for a CPU, mxfp8e5m2 codes as infinity what must saturate (torch 2.15.0).

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install -r bench/peers/requirements-torch.txt
    /tmp/peers/bin/python bench/peers/torchao_mx.py build/dev/bench/assay_peer
"""

import argparse
import functools
import importlib.metadata
import itertools
import pathlib
import statistics
import tempfile

import torch
from safetensors.torch import save_file
from torchao.prototype.mx_formats.config import ScaleCalculationMode as Mode
from torchao.prototype.mx_formats.mx_tensor import to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

from assay_peer import AssayPeer, cpu_seconds

ELEMENTS = {"mxfp4": torch.float4_e2m1fn_x2, "mxfp8": torch.float8_e4m3fn, "mxfp8e5m2": torch.float8_e5m2}
ENCODERS = {
    **{name + ("" if mode is Mode.FLOOR else ":" + mode.value): functools.partial(
        to_mx, elem_dtype=element, block_size=32, scaling_mode=mode)
       for name, element in ELEMENTS.items() for mode in Mode},
    "nvfp4:torchao": lambda values: nvfp4_quantize(values, 16, per_tensor_amax_to_scale(values.abs().max())),
    "nvfp4:torchao-one-level": nvfp4_quantize}


def different(ours, scales, codes):
    """Of Assay's planes the first two: behind them nvfp4 has the scale of the whole tensor."""
    theirs = b"".join(plane.view(torch.uint8).numpy().tobytes() for plane in (codes, scales))
    return sum(a != b for a, b in itertools.zip_longest(ours[:len(theirs)], theirs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="build/dev/bench/assay_peer")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    values = torch.randn((arguments.size, arguments.size), generator=torch.manual_seed(1)).to(torch.bfloat16)
    gigabytes = values.numel() * 2 / 1e9
    peer = AssayPeer(arguments.program)
    peer.ask("threads", 1)
    print(f"torchao {importlib.metadata.version('torchao')}, torch {torch.__version__}; assay on {peer.ask('target')}; "
          f"{arguments.size} x {arguments.size} bf16, one thread, {arguments.rounds} rounds in turn, GB/s of bf16")
    print(f"{'':<24}{'assay':>8}{'torchao':>9}{'ratio':>8}{'compiled':>10}{'ratio':>8}   bytes differ")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_file({"w": values}, folder / "w.safetensors")
        peer.ask("load", folder / "w.safetensors", "w")
        for name, encode in ENCODERS.items():
            torch.compiler.reset()  # else it gives up after some kinds of elements
            compiled = torch.compile(encode)
            actions = [lambda: peer.cpu_seconds("encode", name),
                       lambda: cpu_seconds(lambda: encode(values)), lambda: cpu_seconds(lambda: compiled(values))]
            times = [[(action(), action())[1] for action in actions]  # the first fills the caches, or compiles
                     for _ in range(arguments.rounds)]
            peer.ask("dump-planes", folder / "planes")
            ours = (folder / "planes").read_bytes()
            unequal = [different(ours, *call(values)) for call in (encode, compiled)]
            wrong += unequal[0]
            rate = [gigabytes / statistics.median(samples) for samples in zip(*times)]
            print(f"{name:<24}{rate[0]:>8.2f}{rate[1]:>9.3f}{rate[0] / rate[1]:>7.1f}x{rate[2]:>10.3f}"
                  f"{rate[0] / rate[2]:>7.1f}x   {unequal[0]} + {unequal[1]}")
    peer.close()
    raise SystemExit(wrong != 0)


if __name__ == "__main__":
    main()
