#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/tensor/matrix_view.h"
#include "assay/tensor/tensor.h"

namespace assay {

class CheckpointForm;
class Format;
using FormatPtr = std::shared_ptr<const Format>;

/// One named part of an encoded matrix, in the layout that the format's checkpoint files use, so
/// that reading and writing a checkpoint copies bytes.
struct Plane {
  std::string name;  ///< "codes", "scales", "biases", "signs", …
  Tensor tensor;
};

/// What a plane will be, known before its bytes are.
struct PlaneSpec {
  std::string name;
  DType dtype;
  Shape shape;
};

/// A rows × cols matrix held in a format.
struct EncodedMatrix {
  FormatPtr format;
  int64_t rows = 0;
  int64_t cols = 0;
  /// What upstream's dequantise rounds decoded values to: f32, f16 or bf16.
  DType dtype = DType::kF32;
  std::vector<Plane> planes;

  /// Errors: internal when there is no such plane.
  const Tensor& Get(std::string_view plane) const;
  /// Null when there is none.
  const Tensor* Find(std::string_view plane) const noexcept;
  /// Bytes of all planes.
  int64_t NumBytes() const noexcept;
};

/// How a format cuts a row: runs of `group_size` values that share a scale, codes of `bits`.
struct GroupGeometry {
  int bits = 0;
  int64_t group_size = 0;
};

/// What an encoder may need beside the values.
struct EncodeOptions {
  /// Named in errors; seeds the signs of formats that draw them.
  std::string tensor_name;
  /// Values some planes must take instead of being chosen ("signs" of TurboQuant).
  std::span<const Plane> given_planes = {};
};

/// How exactly decoded values are wanted.
enum class DecodeRounding {
  kCheckpoint,  ///< as upstream's dequantise gives them, in EncodedMatrix::dtype
  kNone,        ///< the format's equation in f32, without the rounding to that dtype
};

/// A way to hold a matrix in few bits. Immutable; shared by all matrices held in it.
/// Threads: every method may be called from several threads at once.
class Format {
 public:
  virtual ~Format() = default;

  /// Canonical name, "affine4g64". Format::Parse(Name()) gives an equal format.
  virtual std::string Name() const = 0;

  /// One line for the catalogue.
  virtual std::string Summary() const = 0;

  /// True when decoding restores every bit pattern of the source.
  virtual bool Lossless() const { return false; }

  /// Nothing for formats without groups along a row (plain types, packed12).
  virtual std::optional<GroupGeometry> Geometry() const { return std::nullopt; }

  /// False for decode-only formats; Encode then throws a usage error that says so.
  virtual bool CanEncode() const { return true; }

  /// Why a matrix of this shape and dtype cannot be encoded, in words that name what would fit;
  /// nothing when it can.
  virtual std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const = 0;

  /// Names, dtypes and shapes of the planes of a rows × cols matrix of `dtype`, in plane order.
  /// Requires: !WhyNot(rows, cols, dtype).
  virtual std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const = 0;

  /// As Layout, for formats whose plane sizes depend on the values (packed12): one pass over them.
  virtual std::vector<PlaneSpec> LayoutFor(const MatrixView& matrix) const;

  /// True when a tensor of any rank is held as one matrix whose rows are all its leading axes (rank
  /// 1: one row; rank 0: one value), false when the matrices of a stack are encoded one by one.
  virtual bool HoldsAnyRank() const { return false; }

  /// Why a quantiser should rather store this matrix as it is, in words; nothing when encoding it
  /// pays. Formats whose sizes depend on the values (packed12) read them once.
  /// Requires: !WhyNot(rows, cols, dtype).
  virtual std::optional<std::string> WhyKeepPlain(const MatrixView& /*matrix*/) const {
    return std::nullopt;
  }

  /// Bits per weight of a rows × cols bf16 matrix, all planes counted. For value-dependent sizes
  /// the smallest possible; a report takes the figure from EncodedMatrix::NumBytes.
  virtual double BitsPerWeight(int64_t rows, int64_t cols) const;

  /// Errors: input, naming options.tensor_name, row and column, for values the format cannot hold;
  /// usage when WhyNot has a reason.
  virtual EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const = 0;

  /// Decodes `count` rows from `first`, widened to f32. Requires out.size() = count · cols and
  /// planes that passed Validate. Errors: internal; input for a code that has no value.
  virtual void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                          std::span<float> out,
                          DecodeRounding rounding = DecodeRounding::kCheckpoint) const = 0;

  /// DecodeRows under kCheckpoint, rounded once more (nearest even) to `dtype`: f32, f16 or bf16.
  /// No rounding when `dtype` is encoded.dtype or f32. Requires out of count · cols elements, any
  /// alignment. Errors: as DecodeRows. Default: through f32 rows, in parallel.
  virtual void DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                            std::span<std::byte> out) const;

  /// Checks planes that come from a file: presence, dtype, shape, and every content rule without
  /// which decoding would be undefined. `name` goes into the message. Errors: input.
  /// Default: the planes must be those of Layout, in any order.
  virtual void Validate(const EncodedMatrix& encoded, std::string_view name) const;

  /// Figures of this encoded matrix beyond its size, for reports: key → value. Default: none.
  virtual std::vector<std::pair<std::string, double>> Figures(
      const EncodedMatrix& /*encoded*/) const {
    return {};
  }

  /// How upstream stores it; null when no upstream file holds it.
  virtual const CheckpointForm* Form() const { return nullptr; }

  /// "affine4g64" → its format. Errors: usage for an unknown name, with the nearest known ones.
  static FormatPtr Parse(std::string_view name);
};

/// Checks common to all encoders: WhyNot, then the matrix. Errors: usage.
void RequireEncodable(const Format& format, const MatrixView& matrix, const EncodeOptions& options);

/// The error of an encoder that met NaN or infinity in `values`: rows of `cols`, the first of them
/// `first_row` of the matrix. Names the first such value's tensor, row and column. Errors: input.
[[noreturn]] void ThrowNotFinite(const Format& format, const EncodeOptions& options,
                                 int64_t first_row, int64_t cols, std::span<const float> values);

}  // namespace assay
