#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/base/aligned_buffer.h"
#include "assay/tensor/dtype.h"

namespace assay {

/// The x[M, K] of one call: as given, and widened to f32 once for every kernel that wants that.
class Activations {
 public:
  /// Requires dtype f32 or bf16 and bytes of num_rows · cols of it, which must outlive this object.
  Activations(DType dtype, int64_t num_rows, int64_t cols, std::span<const std::byte> bytes);

  DType dtype() const noexcept { return dtype_; }
  int64_t num_rows() const noexcept { return num_rows_; }
  int64_t cols() const noexcept { return cols_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// num_rows × cols, row-major. Widened on the first call; call it once before threads start.
  const float* F32() const;

  /// False when an infinity or a NaN is among them. Computed on the first call.
  bool AllFinite() const;

  /// True when some magnitude is below 2^-100 but not 0: a kernel that applies scales after the
  /// products would lose bits of it to underflow. Computed on the first call.
  bool HasTiny() const;

 private:
  void Classify() const;

  DType dtype_;
  int64_t num_rows_;
  int64_t cols_;
  std::span<const std::byte> bytes_;
  mutable AlignedBuffer<float> widened_;
  mutable const float* f32_ = nullptr;
  mutable bool classified_ = false;
  mutable bool finite_ = false;
  mutable bool tiny_ = false;
};

}  // namespace assay
