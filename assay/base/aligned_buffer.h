#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace assay {

/// `num_bytes` of uninitialised memory: 64-byte aligned, and on 2 MiB pages where the system grants
/// them once a buffer is large.
/// Why: a GEMV that streams 4 KiB pages spends a tenth of its time on page walks; malloc gives
/// large pages only when asked.
/// Errors: std::bad_alloc.
std::shared_ptr<std::byte> AllocateAligned(size_t num_bytes);

/// Growable scratch of trivially copyable elements, left uninitialised.
template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t num_values) { Resize(num_values); }

  /// Contents are lost when the buffer has to grow.
  void Resize(size_t num_values) {
    if (num_values > capacity_) {
      memory_.reset();
      memory_ = AllocateAligned(num_values * sizeof(T));
      capacity_ = num_values;
    }
    size_ = num_values;
  }

  T* data() noexcept { return reinterpret_cast<T*>(memory_.get()); }
  const T* data() const noexcept { return reinterpret_cast<const T*>(memory_.get()); }
  size_t size() const noexcept { return size_; }
  size_t num_bytes() const noexcept { return capacity_ * sizeof(T); }
  T& operator[](size_t i) noexcept { return data()[i]; }
  const T& operator[](size_t i) const noexcept { return data()[i]; }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace assay
