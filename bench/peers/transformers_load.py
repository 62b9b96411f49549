#!/usr/bin/env python3
"""Loads a folder that assay wrote as transformers loads a model, and compares its weights with assay's.

    assay quantize   MODEL --format fp8-block128 -o QUANTIZED
    assay dequantize QUANTIZED --dtype bf16 -o DEQUANTIZED
    transformers_load.py QUANTIZED DEQUANTIZED

QUANTIZED is a folder whose config.json names a model and says quant_method fp8 (fp8-block…) or compressed-tensors
(int…, nvfp4:ct, mx…), which transformers decodes while it loads, on the CPU and to bf16. Every tensor of
DEQUANTIZED must be in the model with the same bits; what a slice of a model leaves out is not looked at. Exit 1
when a bit differs or a tensor is missing.

Needs: pip install -r requirements-torch.txt
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file


def decoding(config):
    """The settings that make transformers decode; all else stands in the folder's own config."""
    stated = config.quantization_config
    if stated["quant_method"] == "fp8":
        return transformers.FineGrainedFP8Config(
            weight_block_size=stated["weight_block_size"], dequantize=True)
    if stated["quant_method"] == "compressed-tensors":
        return transformers.CompressedTensorsConfig(run_compressed=False)
    sys.exit(f"quant_method {stated['quant_method']}: transformers does not decode it on a CPU")


def different(name, found, expected):
    if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
        print(f"    {name}: expected {expected.dtype} {tuple(expected.shape)}, found "
              f"{'nothing' if found is None else f'{found.dtype} {tuple(found.shape)}'}")
        return expected.numel()
    return int((found.view(torch.int16) != expected.view(torch.int16)).sum())


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.from_pretrained(sys.argv[1])
    model = transformers.AutoModel.from_pretrained(
        sys.argv[1], quantization_config=decoding(config), dtype=torch.bfloat16)
    state = model.state_dict()
    tensors = {}
    for file in sorted(pathlib.Path(sys.argv[2]).glob("*.safetensors")):
        tensors.update(load_file(file))
    errors = sum(different(name, state.get(name), tensor) for name, tensor in tensors.items())
    values = sum(tensor.numel() for tensor in tensors.values())
    print(f"transformers {transformers.__version__}, {config.quantization_config['quant_method']}: "
          f"{len(tensors)} tensors, {values} values, {errors} different")
    sys.exit(0 if tensors and not errors else 1)


if __name__ == "__main__":
    main()
