// A file's bytes through the header reader. What it accepts must obey the format's rules, and must
// come back equal after our own writer laid it out.

#include <cstdint>
#include <cstdlib>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/safetensors_header.h"
#include "assay/checkpoint/safetensors_layout.h"

namespace {

using assay::SafetensorsEntry;
using assay::SafetensorsHeader;

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckAccepted(const SafetensorsHeader& header, int64_t num_data_bytes) {
  std::vector<assay::TensorSpec> tensors;
  int64_t sum = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    Require(tensors.empty() || tensors.back().name < entry.name);
    Require(0 <= entry.begin && entry.begin <= entry.end && entry.end <= num_data_bytes);
    Require(entry.shape.CheckedNumBytes(entry.dtype) == entry.end - entry.begin);
    sum += entry.end - entry.begin;
    tensors.push_back({entry.name, entry.dtype, entry.shape});
  }
  Require(sum == num_data_bytes);

  const auto layout = assay::LayOutSafetensors(tensors, header.metadata, {}, "copy");
  const SafetensorsHeader again = assay::ParseSafetensorsJson(
      std::string_view(layout.head).substr(8, layout.head.find_last_not_of(' ') - 7), "copy");
  Require(again.metadata == header.metadata && again.entries.size() == header.entries.size());
  for (size_t i = 0; i < again.entries.size(); ++i) {
    Require(again.entries[i].name == header.entries[i].name);
    Require(again.entries[i].dtype == header.entries[i].dtype);
    Require(again.entries[i].shape == header.entries[i].shape);
  }
  assay::CheckSafetensorsRanges(again, num_data_bytes, "copy");
}

template <typename Body>
void OnlyInputErrors(Body&& body) {
  try {
    body();
  } catch (const assay::Error& error) {
    Require(error.kind() == assay::ErrorKind::kInput);
    Require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  OnlyInputErrors([&] {
    const SafetensorsHeader header =
        assay::ReadSafetensorsHeader(assay::AsBytes(input), "fuzz.safetensors");
    CheckAccepted(header, static_cast<int64_t>(size) - header.data_offset);
  });
  // The same bytes as a header alone, over a data buffer as long as it asks for: nothing is
  // allocated for it, so the fuzzer need not find the length that fits.
  if (!input.starts_with('{')) return 0;
  OnlyInputErrors([&] {
    const SafetensorsHeader header = assay::ParseSafetensorsJson(input, "fuzz.json");
    int64_t end = 0;
    for (const SafetensorsEntry& entry : header.entries) end = std::max(end, entry.end);
    assay::CheckSafetensorsRanges(header, end, "fuzz.json");
    CheckAccepted(header, end);
  });
  return 0;
}
