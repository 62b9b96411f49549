#pragma once

#include <cstdint>
#include <functional>

namespace assay {

/// How far a long job is. Bytes are those of its input.
struct Progress {
  int64_t items_done = 0;
  int64_t num_items = 0;
  int64_t bytes_done = 0;
  int64_t num_bytes = 0;
};

/// Told now and then, from the thread that runs the job; may be empty.
using ProgressSink = std::function<void(const Progress&)>;

}  // namespace assay
