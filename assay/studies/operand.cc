#include "assay/studies/operand.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>

#include "assay/checkpoint/model.h"

namespace assay {
namespace {

/// Decodes rows of a weight, matrix after matrix of its stack.
ElementSource DecodedSource(const Weight& weight) {
  struct Planes {
    std::mutex mutex;
    std::map<int64_t, EncodedMatrix> matrices;
  };
  ElementSource source;
  source.dtype = weight.dtype();
  source.shape = weight.PlainShape();
  source.read = [weight, planes = std::make_shared<Planes>()](
                    int64_t first, int64_t count,
                    std::vector<std::byte>& scratch) -> std::span<const std::byte> {
    const size_t row_bytes =
        static_cast<size_t>(weight.cols()) * static_cast<size_t>(BitsOf(weight.dtype())) / 8;
    scratch.resize(static_cast<size_t>(count) * row_bytes);
    for (int64_t done = 0; done < count;) {
      const int64_t index = (first + done) / weight.rows();
      const int64_t row = (first + done) % weight.rows();
      const int64_t rows = std::min(count - done, weight.rows() - row);
      const EncodedMatrix* matrix = nullptr;
      {
        const std::lock_guard lock(planes->mutex);
        auto found = planes->matrices.find(index);
        if (found == planes->matrices.end()) {
          found = planes->matrices.emplace(index, weight.Encoded(index)).first;
        }
        matrix = &found->second;  // map entries stay where they are
      }
      matrix->format->DecodeRowsTo(
          *matrix, row, rows, weight.dtype(),
          std::span(scratch).subspan(static_cast<size_t>(done) * row_bytes,
                                     static_cast<size_t>(rows) * row_bytes));
      done += rows;
    }
    return scratch;
  };
  return source;
}

}  // namespace

std::map<std::string, Operand> OperandsOf(const Model& model, bool stored) {
  std::map<std::string, Operand> operands;
  std::set<std::string, std::less<>> folded;
  if (!stored) {
    for (const Weight& weight : model.Weights()) {
      if (weight.plain()) continue;
      folded.insert(weight.tensor_names().begin(), weight.tensor_names().end());
      operands[weight.name()] = {weight.dtype(), weight.PlainShape(), weight.format()->Name(),
                                 weight.num_bytes(), [&weight] { return DecodedSource(weight); }};
    }
  }
  for (const StoredTensor& tensor : model.Tensors()) {
    if (folded.contains(tensor.name)) continue;
    operands[tensor.name] = {tensor.dtype, tensor.shape, std::string(NameOf(tensor.dtype)),
                             tensor.shape.CheckedNumBytes(tensor.dtype).value_or(0),
                             [&model, &tensor] { return SourceOf(model.Load(tensor.name)); }};
  }
  return operands;
}

}  // namespace assay
