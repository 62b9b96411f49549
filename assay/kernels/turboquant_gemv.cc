#include "assay/kernels/turboquant_gemv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "assay/formats/turboquant.h"
#include "assay/kernels/simd_avx512.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/hadamard.h"

#if ASSAY_HAVE_AVX512
#include "assay/kernels/float_rows_avx512-inl.h"
#endif

namespace assay {
namespace {

const TurboQuantFormat* AsTurboQuant(const EncodedMatrix& weight) {
  return dynamic_cast<const TurboQuantFormat*>(weight.format.get());
}

#if ASSAY_HAVE_AVX512

/// Σ_k x_k · s_k · H(c)_k / √g · norm = norm · Σ_i c_i · H(s · x)_i / √g: H is symmetric.
void RotateX(const float* x, int64_t num_x, int64_t cols, int64_t group,
             std::span<const std::byte> signs, float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(group));
  for (int64_t m = 0; m < num_x; ++m) {
    float* row = out + m * cols;
    for (int64_t c = 0; c < cols; ++c) {
      const float value = x[m * cols + c];
      const bool negative = static_cast<int8_t>(signs[static_cast<size_t>(c)]) < 0;
      row[c] = negative ? -value : value;
    }
    WalshHadamardBlocks(static_cast<size_t>(group), {row, static_cast<size_t>(cols)});
    for (int64_t c = 0; c < cols; ++c) row[c] *= scale;
  }
}

ASSAY_AVX512_BEGIN

/// 64 bytes of indices. Dword l of the register holds 32 / kStored consecutive columns; vector v is
/// the v-th index of every dword, looked up by a permute that reads the low 4 bits of a shifted
/// dword only (16 centroids; fewer are repeated).
template <int kStored, int kGroup>
struct CentroidDecoder {
  static constexpr size_t kVectors = 32 / kStored;
  static constexpr int kColumns = 512 / kStored;
  static constexpr int kScales = 1;
  static constexpr int kGroupsPerStep = kColumns > kGroup ? kColumns / kGroup : 1;
  static constexpr int Column(int v, int lane) { return lane * (32 / kStored) + v; }

  struct Planes {
    const std::byte* codes;
    const std::byte* end;     ///< of the codes
    const std::byte* scales;  ///< f16
    const float* centroids;   ///< 16
    int64_t cols;
  };

  struct Row {
    Row(const Planes& planes, int64_t row)
        : codes(planes.codes + row * (planes.cols * kStored / 8)),
          end(planes.end),
          scales(planes.scales + row * (planes.cols / kGroup) * 2),
          table(_mm512_loadu_ps(planes.centroids)) {
      // f32 scales of the row, so that the loop only loads them; zeros behind the last.
      thread_local AlignedBuffer<float> buffer;
      const int64_t groups = planes.cols / kGroup;
      buffer.Resize(static_cast<size_t>(CeilDiv<int64_t>(groups, 16) * 16 + 16));
      widened = buffer.data();
      for (int64_t g = 0; g < groups + 16; g += 16) {
        const int64_t left = std::clamp<int64_t>(groups - g, 0, 16);
        const auto mask = static_cast<__mmask16>((1u << left) - 1);
        _mm512_storeu_ps(buffer.data() + g, F16Scales::Load16(scales + g * 2, mask));
      }
    }

    void Decode(int64_t step, __m512 (&out)[kVectors]) const {
      const std::byte* at = codes + step * 64;
      const __m512i indices = _mm512_loadu_si512(at);
      if (at + 67 > end) {
        LookUp(indices, out);
        return;
      }
      // A load one byte on is a shift by 8: loads have room, the shifts' port has not.
      constexpr unsigned kPerByte = 8 / kStored;
      for (unsigned byte = 0; byte < 4; ++byte) {
        const __m512i moved = byte == 0 ? indices : _mm512_loadu_si512(at + byte);
        out[byte * kPerByte] = _mm512_permutexvar_ps(moved, table);
        for (unsigned i = 1; i < kPerByte; ++i) {
          out[byte * kPerByte + i] =
              _mm512_permutexvar_ps(_mm512_srli_epi32(moved, i * kStored), table);
        }
      }
    }
    void DecodeTail(int64_t step, int64_t columns, __m512 (&out)[kVectors]) const {
      // Columns past the end meet a zero x.
      LookUp(
          _mm512_maskz_loadu_epi8((__mmask64{1} << columns * kStored / 8) - 1, codes + step * 64),
          out);
    }
    void LookUp(__m512i indices, __m512 (&out)[kVectors]) const {
      out[0] = _mm512_permutexvar_ps(indices, table);
      for (unsigned v = 1; v < kVectors; ++v) {
        out[v] = _mm512_permutexvar_ps(_mm512_srli_epi32(indices, v * kStored), table);
      }
    }
    __m512 Scale(int64_t step, int) const {
      const float* at = widened + step * kColumns / kGroup;
      if constexpr (kGroupsPerStep == 1) {
        return _mm512_set1_ps(*at);
      } else {
        alignas(64) std::array<int32_t, 16> index{};
        for (size_t i = 0; i < 16; ++i) index[i] = static_cast<int32_t>(i) / (16 / kGroupsPerStep);
        return _mm512_permutexvar_ps(_mm512_load_si512(index.data()), _mm512_loadu_ps(at));
      }
    }
    ASSAY_ALWAYS_INLINE void Prefetch(int64_t step) const {
      _mm_prefetch(reinterpret_cast<const char*>(codes + step * 64 + kPrefetchBytes), _MM_HINT_T0);
      // 64 bytes of codes take kGroupsPerStep scales, or a part of one.
      constexpr int64_t kStepsPerLine = 32 * kGroup / kColumns;
      if (step % kStepsPerLine == 0) {
        const int64_t ahead = kPrefetchBytes * 8 / kStored / kGroup * 2;
        _mm_prefetch(reinterpret_cast<const char*>(scales + step * kColumns / kGroup * 2 + ahead),
                     _MM_HINT_T0);
      }
    }

    const std::byte* codes;
    const std::byte* end;
    const std::byte* scales;
    const float* widened;
    __m512 table;
  };
};

ASSAY_AVX512_END

const std::byte* EndOf(const Tensor& plane) { return plane.bytes().data() + plane.num_bytes(); }

template <typename Decoder>
class TurboQuantProduct final : public FloatProduct<Decoder> {
  using Base = FloatProduct<Decoder>;

 public:
  TurboQuantProduct(const EncodedMatrix& weight, const TurboQuantFormat& format)
      : Base(weight,
             {weight.Get("packed").bytes().data(), EndOf(weight.Get("packed")),
              weight.Get("scales").bytes().data(), nullptr, weight.cols},
             fmt::format("{} centroids times rotated f32 x", format.Name())),
        group_(format.group_size()) {
    const auto& centroids = format.DecoderCodebook().centroids;
    for (size_t i = 0; i < 16; ++i) centroids_[i] = centroids[i % centroids.size()];
    this->planes_.centroids = centroids_.data();
  }

  int64_t PreparedBytes() const override { return sizeof(centroids_); }

  Accuracy Bound() const override {
    // The rotation of x rounds log2(g) times, and so did that of the weights.
    const double steps = 2 * std::log2(static_cast<double>(group_)) + 8;
    const double chain = static_cast<double>(this->weight_.cols) / 16 + 24 + 2 * steps;
    return {false, chain * 0x1p-24, group_, "(K/16 + 4·log2(g) + 40) · 2^-24"};
  }

 protected:
  const float* ChangedX(const Activations& x) override {
    // A rotation spreads an infinity over its group.
    if (!x.AllFinite() || x.HasTiny()) return nullptr;
    const auto count = static_cast<size_t>(x.num_rows() * x.cols());
    rotated_.Resize(count);
    RotateX(x.F32(), x.num_rows(), x.cols(), group_, this->weight_.Get("signs").bytes(),
            rotated_.data());
    return rotated_.data();
  }

 private:
  int64_t group_;
  std::array<float, 16> centroids_;
  AlignedBuffer<float> rotated_;
};

template <int kStored>
std::unique_ptr<ProductKernel> MakeProduct(const EncodedMatrix& weight,
                                           const TurboQuantFormat& format) {
  if (format.group_size() == 32) {
    return std::make_unique<TurboQuantProduct<CentroidDecoder<kStored, 32>>>(weight, format);
  }
  if (format.group_size() == 64) {
    return std::make_unique<TurboQuantProduct<CentroidDecoder<kStored, 64>>>(weight, format);
  }
  return std::make_unique<TurboQuantProduct<CentroidDecoder<kStored, 128>>>(weight, format);
}

#endif

void AddTurboQuantKernels(const KernelRequest& request,
                          [[maybe_unused]] std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  const TurboQuantFormat* format = AsTurboQuant(request.weight);
  if (format == nullptr || request.a8 || request.rounding != DecodeRounding::kNone) return;
#if ASSAY_HAVE_AVX512
  if (!HasAvx512Vnni()) return;
  kernels.push_back(format->stored_bits() == 2 ? MakeProduct<2>(request.weight, *format)
                                               : MakeProduct<4>(request.weight, *format));
#endif
}

/// The root mean square of a group, or |w| where that is larger: in the rotated basis the terms of
/// a group are bounded by the norms of both sides.
bool TurboQuantTermMagnitudes(const EncodedMatrix& weight, int64_t row, std::span<double> out) {
  const TurboQuantFormat* format = AsTurboQuant(weight);
  if (format == nullptr) return false;
  std::vector<float> values(out.size());
  format->DecodeRows(weight, row, 1, values, DecodeRounding::kNone);
  const auto group = static_cast<size_t>(format->group_size());
  for (size_t first = 0; first < out.size(); first += group) {
    double squares = 0;
    for (size_t c = first; c < first + group; ++c) {
      squares += static_cast<double>(values[c]) * static_cast<double>(values[c]);
    }
    const double rms = std::sqrt(squares / static_cast<double>(group));
    for (size_t c = first; c < first + group; ++c) {
      out[c] = std::max(rms, std::fabs(static_cast<double>(values[c])));
    }
  }
  return true;
}

}  // namespace

const KernelFamily kTurboQuantKernels = {
    .name = "turboquant",
    .add_kernels = AddTurboQuantKernels,
    .make_decoder = nullptr,
    .term_magnitudes = TurboQuantTermMagnitudes,
};

}  // namespace assay
