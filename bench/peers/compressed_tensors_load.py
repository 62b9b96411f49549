#!/usr/bin/env python3
"""Holds folders that assay wrote in the compressed-tensors layout against that library.

    assay quantize   MODEL --format nvfp4:ct -o QUANTIZED
    assay dequantize QUANTIZED -o DEQUANTIZED
    compressed_tensors_load.py QUANTIZED DEQUANTIZED

QUANTIZED is a folder (config.json and safetensors); DEQUANTIZED a folder or a file. The library
reads quantization_config, and its compressor for the stated format decompresses every module; the
bits are compared with DEQUANTIZED. Exit 1 when a bit differs or nothing was found.

Needs: pip install -r requirements-torch.txt
"""

import json
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.utils.match import match_name
from safetensors.torch import load_file


def load(path):
    path = pathlib.Path(path)
    tensors = {}
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        tensors.update(load_file(file))
    return tensors


def group_of(config, module):
    if any(match_name(module, entry) for entry in config.ignore or []):
        return None
    return next(iter(config.config_groups.values()))


def different(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        print(f"    {a.dtype} {tuple(a.shape)} against {b.dtype} {tuple(b.shape)}")
        return max(a.numel(), b.numel())
    words = {2: torch.int16, 4: torch.int32}[a.element_size()]
    unequal = a.contiguous().view(words) != b.contiguous().view(words)
    return int((unequal & ~(a.isnan() & b.isnan())).sum())


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    quantized, dequantized = load(sys.argv[1]), load(sys.argv[2])
    raw = json.loads((pathlib.Path(sys.argv[1]) / "config.json").read_text())
    config = QuantizationConfig.model_validate(raw["quantization_config"])
    weights = values = errors = 0
    for scale in sorted(quantized):
        if not scale.endswith(".weight_scale"):
            continue
        module = scale.removesuffix(".weight_scale")
        scheme = group_of(config, module)
        if scheme is None:
            print(f"    {module}: has planes, but is on the ignore list")
            errors += 1
            continue
        compressor = BaseCompressor.get_value_from_registry(scheme.format or config.format)
        prefix = module + "."
        state = {
            name.removeprefix(prefix): tensor
            for name, tensor in quantized.items()
            if name.startswith(prefix) and "." not in name.removeprefix(prefix)
        }
        decoded = compressor.decompress(state, scheme)["weight"]
        expected = dequantized[module + ".weight"]
        errors += different(decoded.to(expected.dtype), expected)
        values += expected.numel()
        weights += 1
    print(f"{config.format}: {weights} weights, {values} values, {errors} different")
    sys.exit(0 if weights and not errors else 1)


if __name__ == "__main__":
    main()
