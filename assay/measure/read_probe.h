#pragma once

#include <cstdint>

#include "assay/base/aligned_buffer.h"

namespace assay {

/// The roof of everything that waits for memory: a plain sum over memory, on all threads.
/// Why: speeds of kernels compare between machines only as shares of what the same threads read in
/// the same run.
class ReadProbe {
 public:
  /// A buffer of num_pieces · piece_bytes, written once. Requires both positive, pieces of whole
  /// 4 KiB pages.
  ReadProbe(int64_t piece_bytes, int64_t num_pieces);

  int64_t piece_bytes() const noexcept { return piece_bytes_; }
  int64_t num_pieces() const noexcept { return num_pieces_; }

  /// Reads one piece; `piece` counts on past the last one.
  void Read(int64_t piece);

  /// Reads all of it, which leaves nothing else in caches of half its size.
  void ReadAll();

 private:
  void ReadWords(int64_t first, int64_t count);

  int64_t piece_bytes_;
  int64_t num_pieces_;
  AlignedBuffer<uint64_t> words_;
};

/// Sum of the words modulo 2^64.
uint64_t SumOfWords(const uint64_t* words, int64_t count) noexcept;

}  // namespace assay
