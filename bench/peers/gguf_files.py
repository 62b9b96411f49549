#!/usr/bin/env python3
"""Holds GGUF files that assay wrote against llama.cpp's gguf package and ggml's own reader.

    assay quantize   SOURCE.gguf --format ggml-q4_k -o QUANTISED.gguf
    assay dequantize QUANTISED.gguf --dtype f32 -o DECODED.gguf
    gguf_files.py SOURCE.gguf QUANTISED.gguf DECODED.gguf

Both readers must open QUANTISED and DECODED, ggml's with the data. QUANTISED must have SOURCE's metadata (order, types, values) but for
the file type and the quantisation version, and its tensors in the same order and shapes, those that were
not quantised byte for byte; DECODED must hold the bits that the package decodes from QUANTISED.
Exit 1 when anything differs or nothing was quantised. gguf 0.19.0 does not decode Q1_0 and Q2_0; ggml_blocks.py
holds their blocks against ggml.

Needs: pip install -r requirements.txt
"""

import ctypes
import importlib.util
import pathlib
import sys

import numpy
from gguf import GGUFReader
from gguf.quants import dequantize

CHANGES = {"general.file_type", "general.quantization_version"}


class InitParams(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("context", ctypes.POINTER(ctypes.c_void_p))]


def ggml_reads(path, num_tensors):
    """True when ggml's C reader takes the file and loads its data."""
    package = importlib.util.find_spec("libggml")
    folder = pathlib.Path(package.submodule_search_locations[0])
    library = ctypes.CDLL(str(next(folder.glob("**/libggml-base.so*"))))
    library.gguf_init_from_file.restype = ctypes.c_void_p
    library.gguf_init_from_file.argtypes = [ctypes.c_char_p, InitParams]
    library.gguf_get_n_tensors.restype = ctypes.c_int64
    library.gguf_get_n_tensors.argtypes = [ctypes.c_void_p]
    context = ctypes.c_void_p()
    file = library.gguf_init_from_file(path.encode(), InitParams(False, ctypes.pointer(context)))
    return bool(file) and library.gguf_get_n_tensors(file) == num_tensors


def metadata(reader):
    entries = []
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in CHANGES:
            continue
        entries.append((field.name, list(field.types), [bytes(part) for part in field.parts]))
    return entries


def differing(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return max(a.size, b.size)
    unequal = a.view(numpy.uint32) != b.view(numpy.uint32)
    return int((unequal & ~(numpy.isnan(a) & numpy.isnan(b))).sum())


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, quantised, decoded = (GGUFReader(path) for path in sys.argv[1:])
    failures = 0
    for path, reader in zip(sys.argv[2:], (quantised, decoded)):
        if not ggml_reads(path, len(reader.tensors)):
            print(f"{path}: ggml does not read it")
            failures += 1
    if metadata(source) != metadata(quantised):
        print("metadata differs")
        failures += 1
    names = [tensor.name for tensor in source.tensors]
    if names != [tensor.name for tensor in quantised.tensors]:
        print("the tensors are others, or in another order")
        failures += 1
    plain = {tensor.name: tensor for tensor in source.tensors}
    values = {tensor.name: tensor for tensor in decoded.tensors}
    num_blocks = num_values = 0
    for tensor in quantised.tensors:
        before = plain[tensor.name]
        if list(before.shape) != list(tensor.shape):
            print(f"{tensor.name}: {before.shape} became {tensor.shape}")
            failures += 1
        elif before.tensor_type == tensor.tensor_type:
            if before.data.tobytes() != tensor.data.tobytes():
                print(f"{tensor.name}: bytes changed")
                failures += 1
        else:
            want = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
            found = values[tensor.name].data
            count = differing(numpy.ascontiguousarray(want).reshape(found.shape),
                              numpy.ascontiguousarray(found))
            if count:
                print(f"{tensor.name}: {tensor.tensor_type.name}: {count} values differ")
                failures += 1
            num_blocks += 1
            num_values += want.size
    types = sorted({tensor.tensor_type.name for tensor in quantised.tensors})
    print(f"{len(names)} tensors ({', '.join(types)}), {num_blocks} quantised, "
          f"{num_values} decoded values, {failures} failures")
    return 1 if failures or not num_blocks else 0


if __name__ == "__main__":
    sys.exit(main())
