#include "assay/checkpoint/output_slots.h"

#include "assay/base/error.h"
#include "assay/base/output_file.h"
#include "assay/base/text.h"

namespace assay {

void OutputSlots::Add(const std::string& name, const OutputFile& file, int64_t offset,
                      int64_t num_bytes) {
  if (by_name_.contains(name)) {
    ThrowInput("{}: tensor {} is to be written twice", path_, Quoted(name));
  }
  by_name_.emplace(name, &slots_.emplace_back(&file, offset, num_bytes));
}

void OutputSlots::Write(std::string_view name, std::span<const std::byte> bytes, int64_t offset) {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) {
    ThrowInternal("{}: tensor {} was not announced", path_, Quoted(name));
  }
  Slot& slot = *found->second;
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  if (offset < 0 || num_bytes > slot.num_bytes || offset > slot.num_bytes - num_bytes) {
    ThrowInternal("{}: tensor {}: bytes {} + {} of {}", path_, Quoted(name), offset, num_bytes,
                  slot.num_bytes);
  }
  slot.file->WriteAt(slot.offset + offset, bytes);
  slot.written += num_bytes;
}

void OutputSlots::RequireComplete() const {
  for (const auto& [name, slot] : by_name_) {
    if (slot->written != slot->num_bytes) {
      ThrowInternal("{}: tensor {}: {} of {} bytes were written", path_, Quoted(name),
                    slot->written.load(), slot->num_bytes);
    }
  }
}

}  // namespace assay
