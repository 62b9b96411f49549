#!/usr/bin/env python3
"""Holds the tensor names that assay maps between a folder and a GGUF file against llama.cpp's gguf package.

    gguf_names.py ASSAY [--unknown]

For every architecture of the package, and every name of a Hugging Face folder that the package knows for
it, a folder and a GGUF file with that name in each, compared by ASSAY. Prints how many names both map to
the same place, how many to another, and how many only the package knows (--unknown lists those).
Exit 1 when a name goes to another place, or when none was mapped.

Needs: pip install -r requirements.txt
"""

import collections
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy

# Names of transformers' folders; the rest of the package's are of other writers.
FOLDER = re.compile(
    r"(model\.layers\.0\.|layers\.0\.|encoder\.layer\.0\.|embeddings\.)|"
    r"(model\.embed_tokens|model\.norm|model\.final_layernorm|lm_head|tok_embeddings|output|norm)$")
EXPERTS = re.compile(r"\.experts\.(gate_proj|up_proj|down_proj|w1|w2|w3)$")


def write_folder(folder, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_file(path, architecture, tensors):
    writer = gguf.GGUFWriter(path, architecture)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rounds(architecture):
    """Folder name → file name, such that no file name stands twice in one round.

    A file has gate and up in one tensor or in two: with mlp.gate_up_proj there is no ffn_gate.
    """
    names = gguf.get_tensor_name_map(architecture, 1).mapping
    aliases = collections.defaultdict(list)
    for name, (_, in_file) in names.items():
        if FOLDER.match(name) and name != in_file and not name.endswith(".weight"):
            aliases[in_file].append(name)
    for number in range(max(map(len, aliases.values()), default=0)):
        chosen = {known[number]: in_file for in_file, known in aliases.items() if number < len(known)}
        if any(name.endswith("mlp.gate_up_proj") for name in chosen):
            chosen = {name: in_file for name, in_file in chosen.items()
                      if not in_file.endswith("ffn_gate")}
        yield chosen


def compare(assay, architecture, names):
    """Pairs that assay finds, and those that the package has."""
    expected, folder_tensors, file_tensors = {}, {}, {}
    for number, (name, in_file) in enumerate(names.items()):
        matrix = numpy.full((2, 2), number, numpy.float32)
        file_name = in_file + ".weight"
        if EXPERTS.search(name):
            for expert in range(2):
                folder_tensors[name.replace(".experts.", f".experts.{expert}.") + ".weight"] = matrix
            expected[name.replace(".experts.", ".experts.*.") + ".weight"] = file_name
            file_tensors[file_name] = numpy.stack([matrix, matrix])
            continue
        folder_name = name + ("" if name.endswith(".sinks") else ".weight")
        if in_file.endswith(".exp_probs_b"):
            bias = "_bias" if name.endswith("e_score_correction") else ""
            folder_name, file_name = name + bias, in_file + ".bias"
        expected[folder_name] = file_name
        folder_tensors[folder_name] = file_tensors[file_name] = matrix
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "folder"
        folder.mkdir()
        write_folder(folder, folder_tensors)
        write_file(folder / "../model.gguf", gguf.MODEL_ARCH_NAMES[architecture], file_tensors)
        run = subprocess.run([assay, "compare", folder, folder / "../model.gguf", "--json", "-q"],
                             capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        sys.exit(f"{gguf.MODEL_ARCH_NAMES[architecture]}: {run.stderr}")
    found = {result["tensor"]: result["reference"] for result in json.loads(run.stdout)["results"]
             if "reference" in result}
    return expected, found


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    same, other, unknown = 0, [], collections.Counter()
    for architecture in gguf.MODEL_ARCH:
        for names in rounds(architecture):
            expected, found = compare(sys.argv[1], architecture, names)
            for name, in_file in expected.items():
                if found.get(name) == in_file:
                    same += 1
                elif name in found:
                    other.append((gguf.MODEL_ARCH_NAMES[architecture], name, found[name], in_file))
                else:
                    unknown[name] += 1
    for entry in other:
        print("{}: {} goes to {}, not to {}".format(*entry))
    if "--unknown" in sys.argv:
        for name, count in unknown.most_common():
            print(f"unknown in {count} architectures: {name}")
    print(f"{same} names alike, {len(other)} otherwise, {sum(unknown.values())} ({len(unknown)} "
          "different ones) not in assay's table")
    return 1 if other or same == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
