#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace assay::test {

/// The bytes of a GGUF file, put together field by field, so that a test can write any of them
/// wrong.
class GgufBytes {
 public:
  explicit GgufBytes(int64_t num_tensors = 0, int64_t num_metadata = 0) {
    bytes_ = "GGUF";
    Put<uint32_t>(3).Put(num_tensors).Put(num_metadata);
  }

  template <typename T>
  GgufBytes& Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& PutString(std::string_view text) {
    Put<uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  /// A u32 under `key`.
  GgufBytes& PutU32(std::string_view key, uint32_t value) {
    return PutString(key).Put<int32_t>(4).Put(value);
  }
  /// F32 values in one dimension.
  GgufBytes& PutInfo(std::string_view name, int64_t count, uint64_t offset) {
    return PutString(name).Put<uint32_t>(1).Put(count).Put<int32_t>(0).Put(offset);
  }
  GgufBytes& Pad(size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace assay::test
