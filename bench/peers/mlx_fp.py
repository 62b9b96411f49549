#!/usr/bin/env python3
"""Holds files that assay wrote in MLX's floating-point modes against an installed mlx.

    assay quantize   SOURCE --format mlx-mxfp4 -o QUANTIZED
    assay dequantize QUANTIZED -o DEQUANTIZED
    mlx_fp.py SOURCE QUANTIZED DEQUANTIZED

Each argument is a safetensors file or a folder of them. Compares, bit for bit and on the CPU:
mx.quantize(SOURCE) with the planes of QUANTIZED, and mx.dequantize(QUANTIZED) with DEQUANTIZED
(to the dtype DEQUANTIZED has). Exit 1 when a bit differs.

Needs: pip install "mlx[cpu]==0.32.4" numpy
"""

import json
import pathlib
import sys

import mlx.core as mx
import numpy as np

MODES = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


def load(path):
    """Tensors and the "quantization" entry of a file or folder."""
    path = pathlib.Path(path)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    tensors, entry = {}, None
    for file in files:
        arrays, metadata = mx.load(str(file), return_metadata=True)
        tensors.update(arrays)
        if "quantization" in metadata:
            entry = json.loads(metadata["quantization"])
    if path.is_dir() and (path / "config.json").exists():
        entry = json.loads((path / "config.json").read_text()).get("quantization", entry)
    return tensors, entry


def bits(array):
    width = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[array.dtype.size]
    return np.array(array.view(width))


def different(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        print(f"    {a.dtype} {a.shape} against {b.dtype} {b.shape}")
        return max(a.size, b.size)
    unequal = bits(a) != bits(b)
    if mx.issubdtype(a.dtype, mx.floating):  # payloads of NaN vary
        unequal &= ~np.array(mx.logical_and(mx.isnan(a), mx.isnan(b)))
    return int(unequal.sum())


def settings(entry, module):
    own = entry.get(module, entry)
    mode = own.get("mode", "affine")
    group_size, num_bits = MODES.get(mode, (own.get("group_size"), own.get("bits")))
    return mode, group_size, num_bits


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    mx.set_default_device(mx.cpu)
    (source, _), (quantized, entry), (dequantized, _) = map(load, sys.argv[1:])
    if entry is None:
        sys.exit(f"{sys.argv[2]}: no \"quantization\" in config.json or metadata")
    weights = values = code_errors = scale_errors = decode_errors = 0
    for name in sorted(quantized):
        if not name.endswith(".scales"):
            continue
        module = name.removesuffix(".scales")
        weight = module + ".weight"
        mode, group_size, num_bits = settings(entry, module)
        if mode not in MODES:
            continue
        scale = quantized.get(module + ".global_scale")
        options = dict(group_size=group_size, bits=num_bits, mode=mode)
        is_stack = scale is not None and quantized[weight].ndim == 3  # a scale for each expert
        for index in range(quantized[weight].shape[0] if is_stack else 1):
            def part(array):
                return array[index] if is_stack else array
            extra = {} if scale is None else {"global_scale": scale.reshape(-1)[index]}
            planes = part(quantized[weight]), part(quantized[name])
            expected = part(dequantized[weight])
            decoded = mx.dequantize(*planes, dtype=expected.dtype, **options, **extra)
            # With a global scale mlx 0.32.4 answers in f32, whatever dtype it is asked for.
            decode_errors += different(decoded.astype(expected.dtype), expected)
            codes, scales = mx.quantize(part(source[weight]), **options, **extra)
            code_errors += different(codes, planes[0])
            scale_errors += different(scales, planes[1])
            values += expected.size
        weights += 1
    print(
        f"mlx {mx.__version__}: {weights} weights, {values} values; different: "
        f"{code_errors} words of codes, {scale_errors} scales, {decode_errors} decoded values"
    )
    sys.exit(0 if weights and not code_errors + scale_errors + decode_errors else 1)


if __name__ == "__main__":
    main()
