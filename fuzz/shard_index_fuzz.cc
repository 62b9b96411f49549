// An index file's text. No accepted shard name may lead out of the folder.

#include <cstdint>
#include <cstdlib>

#include "assay/base/error.h"
#include "assay/checkpoint/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const assay::ShardIndex index = assay::ParseShardIndex(text, "fuzz.index.json");
    for (const auto& [tensor, shard] : index.weight_map) {
      if (shard.empty() || shard == "." || shard == ".." ||
          shard.find_first_of(std::string_view("/\\:\0\n", 5)) != std::string::npos) {
        std::abort();
      }
    }
  } catch (const assay::Error& error) {
    if (error.kind() != assay::ErrorKind::kInput) std::abort();
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
