#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace assay {

/// Writes tensors that were announced before their bytes.
/// Why:     a model is larger than memory; bytes come in any order, in pieces, from any thread, and
///          each goes straight to its place.
/// Errors:  the output appears at Commit, whole, or not at all (see OutputFile, OutputFolder). Disk
///          space is taken when the writer is made: a full disk shows before the work.
/// Threads: Write may be called from several threads at once.
class TensorWriter {
 public:
  virtual ~TensorWriter() = default;

  /// The bytes of a tensor from byte `offset` of it. Errors: internal for a tensor or a range that
  /// was not announced; input.
  virtual void Write(std::string_view tensor, std::span<const std::byte> bytes,
                     int64_t offset = 0) = 0;

  /// Call once, after every byte was written. Errors: internal when bytes are missing; input.
  virtual void Commit() = 0;
};

}  // namespace assay
