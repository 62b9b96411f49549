#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/checkpoint/gguf_writer.h"
#include "assay/numeric/random.h"
#include "assay/studies/compare.h"
#include "assay/studies/fidelity.h"
#include "tests/support/temp_folder.h"
#include "tests/support/write_safetensors.h"

/// A model as a Hugging Face folder and as the GGUF file that llama.cpp's converter would make of
/// it.
namespace assay::test {

inline constexpr int64_t kHidden = 32;

inline SmallTensor Random(const std::string& name, const std::vector<int64_t>& shape) {
  static uint64_t seed = 0;
  SmallTensor tensor{name, shape, {}};
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  tensor.values.resize(static_cast<size_t>(count));
  NormalGenerator(20261201 + seed++).Fill(tensor.values);
  return tensor;
}

inline SmallTensor Named(SmallTensor tensor, const std::string& name) {
  tensor.name = name;
  return tensor;
}

/// As the converter says it: [heads, 2, half, …] with the two middle axes changed over.
inline SmallTensor Permuted(const SmallTensor& tensor, int64_t heads) {
  SmallTensor permuted = tensor;
  const auto rows = static_cast<size_t>(tensor.shape[0]);
  const size_t cols = tensor.values.size() / rows;
  const size_t half = rows / static_cast<size_t>(heads) / 2;
  size_t to = 0;
  for (size_t head = 0; head < static_cast<size_t>(heads); ++head) {
    for (size_t i = 0; i < half; ++i) {
      for (size_t j = 0; j < 2; ++j) {
        const size_t from = (head * 2 + j) * half + i;
        for (size_t k = 0; k < cols; ++k) {
          permuted.values[to++] = tensor.values[from * cols + k];
        }
      }
    }
  }
  return permuted;
}

inline SmallTensor Shifted(SmallTensor tensor, float shift) {
  for (float& value : tensor.values) value += shift;
  return tensor;
}

inline SmallTensor Stacked(const std::vector<SmallTensor>& tensors, const std::string& name) {
  SmallTensor stack{name, tensors[0].shape, {}};
  stack.shape.insert(stack.shape.begin(), static_cast<int64_t>(tensors.size()));
  for (const SmallTensor& tensor : tensors) {
    stack.values.insert(stack.values.end(), tensor.values.begin(), tensor.values.end());
  }
  return stack;
}

inline SmallTensor RowsJoined(const std::vector<SmallTensor>& tensors, const std::string& name) {
  SmallTensor joined = Stacked(tensors, name);
  joined.shape.erase(joined.shape.begin());
  joined.shape[0] = 0;
  for (const SmallTensor& tensor : tensors) joined.shape[0] += tensor.shape[0];
  return joined;
}

/// One model twice.
class Twins {
 public:
  Twins() {
    metadata_.Append("general.architecture", GgufValue::Of("llama"));
    folder_.Write("folder.txt", "");
  }

  void Architecture(std::string_view name) {
    metadata_.Set("general.architecture", GgufValue::Of(name));
  }
  void Number(std::string_view key, uint32_t value) { metadata_.Set(key, GgufValue::Of(value)); }
  void Value(std::string_view key, GgufValue value) { metadata_.Set(key, std::move(value)); }
  void Config(const std::string& text) { config_ = text; }
  void Add(const SmallTensor& in_folder, const SmallTensor& in_file) {
    AddToFolder(in_folder);
    AddToFile(in_file);
  }
  void AddToFolder(const SmallTensor& tensor) { in_folder_.push_back(tensor); }
  void AddToFile(const SmallTensor& tensor) { in_file_.push_back(tensor); }

  /// Adds the same values under two names.
  void AddSame(const std::string& in_folder, const std::string& in_file,
               const std::vector<int64_t>& shape) {
    const SmallTensor tensor = Random(in_folder, shape);
    Add(tensor, Named(tensor, in_file));
  }

  std::string Folder() const {
    WriteSafetensors(folder_ / "model.safetensors", in_folder_);
    folder_.Write("config.json", config_);
    return folder_.path();
  }
  std::string File() const {
    std::vector<TensorSpec> specs;
    for (const SmallTensor& tensor : in_file_) {
      specs.push_back({tensor.name, DType::kF32, Shape(tensor.shape)});
    }
    GgufWriter writer(file_folder_ / "model.gguf", specs, metadata_);
    for (const SmallTensor& tensor : in_file_) {
      writer.Write(tensor.name, std::as_bytes(std::span(tensor.values)));
    }
    writer.Commit();
    return file_folder_ / "model.gguf";
  }

  CompareReport Compare(bool folder_first = true) const {
    CompareOptions options;
    options.a = folder_first ? Folder() : File();
    options.b = folder_first ? File() : Folder();
    options.gates.equal = true;
    return RunCompare(options);
  }
  FidelityReport Fidelity(bool folder_first = true) const {
    FidelityOptions options;
    options.model = folder_first ? Folder() : File();
    options.against = folder_first ? File() : Folder();
    options.tokens = 4;
    options.repeats = 0;
    return RunFidelity(options);
  }

 private:
  TempFolder folder_;
  TempFolder file_folder_;
  GgufMetadata metadata_;
  std::string config_ = "{}";
  std::vector<SmallTensor> in_folder_;
  std::vector<SmallTensor> in_file_;
};

inline const ComparedTensor& Find(const CompareReport& report, std::string_view name) {
  for (const ComparedTensor& tensor : report.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::out_of_range(std::string(name));
}

/// 4 heads of 8 rows for the query, 2 for the key.
inline void AddLlamaLayer(Twins& twins, int layer, int64_t query_heads = 4, int64_t key_heads = 2) {
  const std::string in_folder = fmt::format("model.layers.{}.", layer);
  const std::string in_file = fmt::format("blk.{}.", layer);
  const auto add_permuted = [&](const char* name, const char* short_name,
                                const std::vector<int64_t>& shape, int64_t heads) {
    const SmallTensor tensor = Random(in_folder + name, shape);
    twins.Add(tensor, Named(heads > 0 ? Permuted(tensor, heads) : tensor, in_file + short_name));
  };
  add_permuted("self_attn.q_proj.weight", "attn_q.weight", {32, kHidden}, query_heads);
  add_permuted("self_attn.q_proj.bias", "attn_q.bias", {32}, query_heads);
  add_permuted("self_attn.k_proj.weight", "attn_k.weight", {16, kHidden}, key_heads);
  twins.AddSame(in_folder + "self_attn.v_proj.weight", in_file + "attn_v.weight", {16, kHidden});
  twins.AddSame(in_folder + "self_attn.o_proj.weight", in_file + "attn_output.weight",
                {kHidden, 32});
  twins.AddSame(in_folder + "mlp.gate_proj.weight", in_file + "ffn_gate.weight", {48, kHidden});
  twins.AddSame(in_folder + "mlp.up_proj.weight", in_file + "ffn_up.weight", {48, kHidden});
  twins.AddSame(in_folder + "mlp.down_proj.weight", in_file + "ffn_down.weight", {kHidden, 48});
  twins.AddSame(in_folder + "input_layernorm.weight", in_file + "attn_norm.weight", {kHidden});
  twins.AddSame(in_folder + "post_attention_layernorm.weight", in_file + "ffn_norm.weight",
                {kHidden});
}

inline void AddEnds(Twins& twins, bool head = true) {
  twins.AddSame("model.embed_tokens.weight", "token_embd.weight", {20, kHidden});
  twins.AddSame("model.norm.weight", "output_norm.weight", {kHidden});
  if (head) twins.AddSame("lm_head.weight", "output.weight", {20, kHidden});
}

inline void SetLlamaHeads(Twins& twins) {
  twins.Number("llama.attention.head_count", 4);
  twins.Number("llama.attention.head_count_kv", 2);
}

inline void ExpectAllEqual(const CompareReport& report, size_t num_tensors) {
  EXPECT_EQ(report.tensors.size(), num_tensors);
  for (const ComparedTensor& tensor : report.tensors) {
    EXPECT_TRUE(tensor.passed) << tensor.name << ": " << testing::PrintToString(tensor.reasons);
    EXPECT_EQ(tensor.fits_only, "");
  }
}

}  // namespace assay::test
