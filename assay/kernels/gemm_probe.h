#pragma once

#include <cstdint>
#include <string>

#include "assay/base/aligned_buffer.h"
#include "assay/tensor/tensor.h"

namespace assay {

/// One product of the dense library at a size that suits it: what it reaches is the roof of a GEMM.
/// Inputs: bf16 where the library multiplies it, f32 elsewhere, drawn by Lcg.
class GemmProbe {
 public:
  GemmProbe();

  /// "oneDNN 2.6.3, bf16".
  std::string Name() const;
  /// Multiplications and additions of one Run.
  static double Operations() { return 2.0 * kM * kN * kK; }
  void Run();

 private:
  static constexpr int64_t kM = 512;
  static constexpr int64_t kN = 2048;
  static constexpr int64_t kK = 2048;

  DType dtype_;
  Tensor x_;
  Tensor w_;
  AlignedBuffer<float> y_;
};

}  // namespace assay
