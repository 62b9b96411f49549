#include "assay/formats/packed12.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/packed12_codec.h"

namespace assay {
namespace {

using F = Packed12Format;

int64_t PlaneBytes(int64_t num_values) { return num_values + CeilDiv<int64_t>(num_values, 2); }

std::vector<PlaneSpec> Specs(int64_t rows, int64_t cols, int64_t escapes) {
  return {{"header", DType::kU8, Shape{F::kHeaderBytes}},
          {"sm", DType::kU8, Shape{rows, cols}},
          {"ex", DType::kU8, Shape{CeilDiv<int64_t>(rows * cols, 2)}},
          {"escape_indices", DType::kU32, Shape{escapes}},
          {"escape_values", DType::kBF16, Shape{escapes}}};
}

int64_t NumEscapes(const MatrixView& matrix) {
  const auto counts = packed12::CountExponents(matrix.RowBytes(0, matrix.rows()));
  return packed12::CountEscapes(counts, packed12::ChooseBase(counts));
}

int Header(std::span<const std::byte> header, size_t at) {
  return std::to_integer<int>(header[at]);
}

packed12::InputPlanes InputPlanesOf(const EncodedMatrix& encoded) {
  return {Header(encoded.Get("header").bytes(), 0), encoded.Get("sm").bytes(),
          encoded.Get("ex").bytes(), encoded.Get("escape_indices").bytes(),
          encoded.Get("escape_values").bytes()};
}

// A broken rule: in which plane, at which of its bytes, and what.
struct Fault {
  std::string_view plane;
  size_t offset;
  std::string what;
};

std::optional<Fault> FindHeaderFault(std::span<const std::byte> header) {
  if (Header(header, 0) < F::kMinBase || Header(header, 0) > F::kMaxBase) {
    return Fault{"header", 0,
                 fmt::format("base exponent: expected {} to {}, found {}", F::kMinBase, F::kMaxBase,
                             Header(header, 0))};
  }
  if (Header(header, 1) != F::kVersion) {
    return Fault{"header", 1,
                 fmt::format("version: expected {}, found {}", F::kVersion, Header(header, 1))};
  }
  for (size_t i = 2; i < header.size(); ++i) {
    if (Header(header, i) != 0) {
      return Fault{"header", i,
                   fmt::format("reserved byte: expected 0, found {}", Header(header, i))};
    }
  }
  return std::nullopt;
}

// Requires planes of the right sizes. Indices are checked before they are used.
std::optional<Fault> FindFault(std::span<const std::byte> header, const packed12::InputPlanes& in) {
  if (auto fault = FindHeaderFault(header)) return fault;
  const size_t num_values = in.sm.size();
  if (num_values % 2 != 0 && std::to_integer<int>(in.ex.back() >> 4) != 0) {
    return Fault{"ex", in.ex.size() - 1,
                 fmt::format("unused nibble: expected 0, found {}",
                             std::to_integer<int>(in.ex.back() >> 4))};
  }
  const size_t escapes = in.escape_values.size() / 2;
  uint32_t previous = 0;
  for (size_t k = 0; k < escapes; ++k) {
    uint32_t index;
    std::memcpy(&index, in.escape_indices.data() + 4 * k, sizeof(index));
    if (index >= num_values) {
      return Fault{
          "escape_indices", 4 * k,
          fmt::format("escape index {} is out of range, there are {} values", index, num_values)};
    }
    if (k > 0 && index <= previous) {
      return Fault{
          "escape_indices", 4 * k,
          fmt::format("escape indices must be ascending, found {} after {}", index, previous)};
    }
    previous = index;
  }
  for (size_t k = 0; k < escapes; ++k) {
    uint32_t index;
    uint16_t word;
    std::memcpy(&index, in.escape_indices.data() + 4 * k, sizeof(index));
    std::memcpy(&word, in.escape_values.data() + 2 * k, sizeof(word));
    const int sm = std::to_integer<int>(in.sm[index]);
    if (sm != 0) {
      return Fault{"sm", index,
                   fmt::format("value {} is an escape, its byte must be 0, found {}", index, sm)};
    }
    const int code = std::to_integer<int>(in.ex[index / 2] >> (4 * (index % 2))) & 0xF;
    if (code != 0) {
      return Fault{"ex", index / 2,
                   fmt::format("value {} is an escape, its code must be 0, found {}", index, code)};
    }
    const int exponent = (word >> 7) & 0xFF;
    if (exponent == 0 || (exponent >= in.base && exponent < in.base + F::kNumCodes)) {
      return Fault{"escape_values", 2 * k,
                   fmt::format("escape of value {}: exponent {} has a code and needs no escape",
                               index, exponent)};
    }
  }
  return std::nullopt;
}

EncodedMatrix MakeEncoded(int64_t rows, int64_t cols) {
  EncodedMatrix encoded;
  encoded.format = std::make_shared<Packed12Format>();
  encoded.rows = rows;
  encoded.cols = cols;
  encoded.dtype = DType::kBF16;
  return encoded;
}

}  // namespace

std::string Packed12Format::Summary() const {
  return "bf16 in 12 bits, lossless: sign and mantissa whole, exponent as a 4-bit code";
}

std::optional<std::string> Packed12Format::WhyNot(int64_t rows, int64_t cols, DType dtype) const {
  if (dtype != DType::kBF16) {
    return fmt::format("it packs BF16 only, found {}", NameOf(dtype));
  }
  const auto num_values = CheckedMul(rows, cols);
  if (rows < 0 || cols < 0 || !num_values || *num_values > kMaxValues) {
    return fmt::format("it numbers at most 2^32 values, found {} × {}", rows, cols);
  }
  return std::nullopt;
}

std::vector<PlaneSpec> Packed12Format::Layout(int64_t rows, int64_t cols, DType /*dtype*/) const {
  return Specs(rows, cols, 0);
}

std::vector<PlaneSpec> Packed12Format::LayoutFor(const MatrixView& matrix) const {
  return Specs(matrix.rows(), matrix.cols(), NumEscapes(matrix));
}

std::optional<std::string> Packed12Format::WhyKeepPlain(const MatrixView& matrix) const {
  const int64_t num_values = matrix.rows() * matrix.cols();
  const int64_t escapes = NumEscapes(matrix);
  const int64_t num_bytes = kHeaderBytes + PlaneBytes(num_values) + kEscapeBytes * escapes;
  if (static_cast<double>(escapes) > kMaxEscapeFraction * static_cast<double>(num_values)) {
    return fmt::format("{} of {} exponents fit no window of {}", escapes, num_values, kNumCodes);
  }
  if (num_bytes >= 2 * num_values) {
    return fmt::format("{} bytes packed, {} plain", num_bytes, 2 * num_values);
  }
  return std::nullopt;
}

EncodedMatrix Packed12Format::Encode(const MatrixView& matrix, const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  EncodedMatrix encoded = MakeEncoded(matrix.rows(), matrix.cols());
  std::vector<PlaneSpec> specs = Specs(matrix.rows(), matrix.cols(), 0);
  for (size_t i = 0; i < 3; ++i) {
    encoded.planes.push_back(
        {specs[i].name, Tensor::AllocateUninitialized(specs[i].dtype, specs[i].shape)});
  }
  const packed12::Escaped escaped = packed12::EncodeWords(matrix.RowBytes(0, matrix.rows()),
                                                          encoded.planes[1].tensor.mutable_bytes(),
                                                          encoded.planes[2].tensor.mutable_bytes());
  const std::span<std::byte> header = encoded.planes[0].tensor.mutable_bytes();
  std::ranges::fill(header, std::byte{0});
  header[0] = static_cast<std::byte>(escaped.base);
  header[1] = static_cast<std::byte>(kVersion);
  specs = Specs(matrix.rows(), matrix.cols(), static_cast<int64_t>(escaped.values.size() / 2));
  for (const auto& [index, bytes] :
       {std::pair{size_t{3}, &escaped.indices}, std::pair{size_t{4}, &escaped.values}}) {
    Tensor tensor = Tensor::AllocateUninitialized(specs[index].dtype, specs[index].shape);
    std::ranges::copy(*bytes, tensor.mutable_bytes().begin());
    encoded.planes.push_back({specs[index].name, std::move(tensor)});
  }
  return encoded;
}

namespace {

// Errors: internal when the rows are not there or the output has another size.
void RequireRows(const EncodedMatrix& encoded, int64_t first, int64_t count, size_t num_out) {
  if (first < 0 || count < 0 || first > encoded.rows - count ||
      num_out != static_cast<size_t>(count * encoded.cols)) {
    ThrowInternal("packed12: rows {}+{} of {} into {} values", first, count, encoded.rows, num_out);
  }
}

}  // namespace

void Packed12Format::DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                std::span<float> out, DecodeRounding /*rounding*/) const {
  RequireRows(encoded, first, count, out.size());
  packed12::DecodeFloats(InputPlanesOf(encoded), first * encoded.cols, count * encoded.cols, out);
}

void Packed12Format::DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count,
                                  DType dtype, std::span<std::byte> out) const {
  if (dtype != DType::kBF16) return Format::DecodeRowsTo(encoded, first, count, dtype, out);
  RequireRows(encoded, first, count, out.size() / 2);
  packed12::DecodeWords(InputPlanesOf(encoded), first * encoded.cols, count * encoded.cols, out);
}

void Packed12Format::Validate(const EncodedMatrix& encoded, std::string_view name) const {
  if (const auto reason = WhyNot(encoded.rows, encoded.cols, encoded.dtype)) {
    ThrowInput("{}: not a packed12 matrix: {}", name, *reason);
  }
  const Tensor* indices = encoded.Find("escape_indices");
  const bool is_list = indices != nullptr && indices->shape().rank() == 1;
  const int64_t escapes = is_list ? indices->shape()[0] : 0;
  for (const PlaneSpec& spec : Specs(encoded.rows, encoded.cols, escapes)) {
    const Tensor* tensor = encoded.Find(spec.name);
    if (tensor == nullptr) ThrowInput("{}: plane \"p12_{}\" is missing", name, spec.name);
    if (tensor->dtype() != spec.dtype || tensor->shape() != spec.shape) {
      ThrowInput("{}: plane \"p12_{}\": expected {} {}, found {} {}", name, spec.name,
                 NameOf(spec.dtype), spec.shape.ToString(), NameOf(tensor->dtype()),
                 tensor->shape().ToString());
    }
  }
  if (const auto fault = FindFault(encoded.Get("header").bytes(), InputPlanesOf(encoded))) {
    ThrowInput("{}: plane \"p12_{}\": byte {}: {}", name, fault->plane, fault->offset, fault->what);
  }
}

Packed12Info Packed12InfoOf(const EncodedMatrix& encoded) {
  Packed12Info info;
  info.num_values = encoded.rows * encoded.cols;
  info.num_bytes = encoded.NumBytes();
  info.escapes = encoded.Get("escape_values").num_bytes() / 2;
  if (info.num_values > 0) {
    const auto num_values = static_cast<double>(info.num_values);
    info.ratio = static_cast<double>(info.num_bytes) / (2 * num_values);
    info.escape_fraction = static_cast<double>(info.escapes) / num_values;
  }
  info.base_exponent = Header(encoded.Get("header").bytes(), 0);
  info.last_exponent = info.base_exponent + Packed12Format::kNumCodes - 1;
  return info;
}

std::vector<std::pair<std::string, double>> Packed12Format::Figures(
    const EncodedMatrix& encoded) const {
  const Packed12Info info = Packed12InfoOf(encoded);
  return {{"ratio", info.ratio},
          {"escapes", static_cast<double>(info.escapes)},
          {"escape_fraction", info.escape_fraction},
          {"base_exponent", info.base_exponent},
          {"last_exponent", info.last_exponent}};
}

std::vector<std::byte> Packed12ToStream(const EncodedMatrix& encoded) {
  std::vector<std::byte> stream;
  stream.reserve(static_cast<size_t>(encoded.NumBytes()));
  for (const char* plane : {"header", "sm", "ex", "escape_indices", "escape_values"}) {
    const auto bytes = encoded.Get(plane).bytes();
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  return stream;
}

EncodedMatrix Packed12FromStream(std::span<const std::byte> stream, const Shape& shape,
                                 std::string_view name) {
  const auto checked = shape.CheckedNumElements();
  if (!checked) ThrowInput("{}: the size of shape {} overflows", name, shape.ToString());
  if (*checked > F::kMaxValues) {
    ThrowInput("{}: expected at most 2^32 values, found shape {}", name, shape.ToString());
  }
  const auto num_values = static_cast<size_t>(*checked);
  const auto fixed = static_cast<size_t>(F::kHeaderBytes + PlaneBytes(*checked));
  if (stream.size() < fixed) {
    ThrowInput("{}: byte {}: packed12 of {} values is too short: expected at least {} bytes", name,
               stream.size(), num_values, fixed);
  }
  if ((stream.size() - fixed) % F::kEscapeBytes != 0) {
    ThrowInput("{}: byte {}: the {} bytes of escapes are no multiple of {}", name, stream.size(),
               stream.size() - fixed, F::kEscapeBytes);
  }
  const size_t escapes = (stream.size() - fixed) / F::kEscapeBytes;
  const int64_t cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const int64_t rows = cols == 0 ? 0 : *checked / cols;
  EncodedMatrix encoded = MakeEncoded(rows, cols);
  size_t at = 0;
  std::vector<size_t> offsets;
  for (PlaneSpec& spec : Specs(rows, cols, static_cast<int64_t>(escapes))) {
    Tensor tensor = Tensor::Allocate(spec.dtype, spec.shape);
    const auto bytes = stream.subspan(at, static_cast<size_t>(tensor.num_bytes()));
    std::copy(bytes.begin(), bytes.end(), tensor.mutable_bytes().begin());
    encoded.planes.push_back({std::move(spec.name), std::move(tensor)});
    offsets.push_back(at);
    at += bytes.size();
  }
  if (const auto fault = FindFault(encoded.Get("header").bytes(), InputPlanesOf(encoded))) {
    for (size_t i = 0; i < encoded.planes.size(); ++i) {
      if (encoded.planes[i].name == fault->plane) {
        ThrowInput("{}: byte {}: {}", name, offsets[i] + fault->offset, fault->what);
      }
    }
  }
  return encoded;
}

}  // namespace assay
