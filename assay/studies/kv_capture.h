#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/checkpoint/container.h"

namespace assay {

/// Keys, values or queries that somebody recorded.
/// Shape: the last axis is the head dimension; leading axes are free. The first of them is the
///        position, all between are heads; leading axes of 1 are dropped while more than three
///        axes are left ([1, tokens, heads, dim]).
struct KvCapture {
  std::string path;  ///< file it came from; "synthetic"
  std::string name;
  DType dtype = DType::kF32;  ///< F32, F16 or BF16
  Shape shape;
  int64_t positions = 1;
  int64_t heads = 1;
  int64_t cols = 0;
  ContainerPtr file;  ///< null for a synthetic one
  size_t index = 0;   ///< in the file
  uint64_t seed = 0;  ///< of a synthetic one

  int64_t rows() const { return positions * heads; }
  int64_t num_bytes() const;
  /// Rows of the last axis: mapped, or drawn from N(0, 1).
  Tensor Load() const;
};

/// A tensor of a capture file that is no capture.
struct NoKvCapture {
  std::string path;
  std::string name;
  std::string reason;
};

struct KvCaptures {
  std::vector<KvCapture> captures;  ///< by file in the order given, then by name
  std::vector<NoKvCapture> others;
  std::vector<ContainerPtr> files;
  std::vector<int64_t> tokens;  ///< of the first integer tensor called "tokens"
};

/// Opens files and folders; of a folder every *.safetensors and *.npy, by name. Headers only.
/// Errors: input for unreadable files and folders without any.
KvCaptures OpenKvCaptures(const std::vector<std::string>& paths);

/// Gaussian captures "window" and "main" [tokens, 512], "index" [tokens, 128].
std::vector<KvCapture> SyntheticKvCaptures(int64_t tokens, uint64_t seed);

}  // namespace assay
