#pragma once

#include "assay/formats/catalogue.h"
#include "assay/formats/format.h"
#include "assay/formats/ggml_type.h"

namespace assay {

/// The blocks of ggml, the tensor types of GGUF files: a run of a row's values shares the scales
/// that stand with its codes in one block of bytes.
///
/// Layout:   plane "blocks" U8 [rows, cols / block_values · block_bytes], as in a GGUF tensor.
/// Values:   decode to f32, each product and sum rounded by itself. A file's scales may be
///           infinite or NaN and decode as such.
/// Encoding: what ggml's quantiser writes without an importance matrix; NaN, infinity and blocks
///           whose result upstream leaves undefined or not finite are refused.
/// Accuracy: exact on every target: the bits of ggml 0.25.3.
/// Source:   ggml, src/ggml-quants.c; docs/formats/ggml.md.
class GgmlFormat final : public Format, public std::enable_shared_from_this<GgmlFormat> {
 public:
  /// Requires a type of blocks.
  explicit GgmlFormat(const GgmlType& type) : type_(type) {}

  /// Errors: internal for plain types.
  static FormatPtr Make(const GgmlType& type);

  const GgmlType& type() const noexcept { return type_; }

  std::string Name() const override;
  std::string Summary() const override;
  bool CanEncode() const override;
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  void DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                    std::span<std::byte> out) const override;
  void Validate(const EncodedMatrix& encoded, std::string_view name) const override;

 private:
  const GgmlType& type_;
};

/// Every tensor of blocks is a weight.
void RecogniseGgml(const CheckpointSource& source, Recognition& found);

extern const FormatFamily kGgmlFamily;

}  // namespace assay
