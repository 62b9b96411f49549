#include "assay/checkpoint/weight.h"

#include <mutex>
#include <optional>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model_source.h"

namespace assay {

struct Weight::State {
  std::shared_ptr<const ModelSource> source;
  FoundWeight found;
  bool plain = false;
  int64_t num_values = 0;
  int64_t num_bytes = 0;

  // The matrix used last: rows are read in many small steps, and checking planes may be a pass.
  std::mutex mutex;
  std::optional<int64_t> cached_index;
  EncodedMatrix cached;
};

Weight::Weight(std::shared_ptr<const ModelSource> source, FoundWeight found, bool plain)
    : state_(std::make_shared<State>()) {
  const std::string where = fmt::format("{}: weight {}", source->Path(), Quoted(found.name));
  if (!found.format || found.rows < 0 || found.cols < 0 || found.stack < 0) {
    ThrowInternal("{}: recognised without a format or with negative sizes", where);
  }
  const auto matrix = CheckedMul(found.rows, found.cols);
  const auto values = matrix ? CheckedMul(*matrix, found.stack) : std::nullopt;
  if (!values) {
    ThrowInput("{}: {} matrices of {} × {}: the number of values overflows", where, found.stack,
               found.rows, found.cols);
  }
  state_->num_values = *values;
  for (const std::string& name : found.tensor_names) {
    const StoredTensor* tensor = source->Find(name);
    if (tensor == nullptr) ThrowInternal("{}: claims {}, which is not there", where, Quoted(name));
    state_->num_bytes += tensor->shape.CheckedNumBytes(tensor->dtype).value_or(0);
  }
  state_->source = std::move(source);
  state_->found = std::move(found);
  state_->plain = plain;
}

const std::string& Weight::name() const noexcept { return state_->found.name; }
int64_t Weight::rows() const noexcept { return state_->found.rows; }
int64_t Weight::cols() const noexcept { return state_->found.cols; }
int64_t Weight::stack() const noexcept { return state_->found.stack; }
bool Weight::stacked() const noexcept { return state_->found.stacked; }
DType Weight::dtype() const noexcept { return state_->found.dtype; }
const FormatPtr& Weight::format() const noexcept { return state_->found.format; }
bool Weight::plain() const noexcept { return state_->plain; }
const std::vector<std::string>& Weight::tensor_names() const noexcept {
  return state_->found.tensor_names;
}
const std::vector<std::string>& Weight::notes() const noexcept { return state_->found.notes; }
int64_t Weight::num_values() const noexcept { return state_->num_values; }
int64_t Weight::num_bytes() const noexcept { return state_->num_bytes; }

Shape Weight::PlainShape() const {
  const FoundWeight& found = state_->found;
  if (found.plain_shape) return *found.plain_shape;
  if (found.stacked) return Shape{found.stack, found.rows, found.cols};
  return Shape{found.rows, found.cols};
}

EncodedMatrix Weight::Encoded(int64_t index) const {
  const FoundWeight& found = state_->found;
  if (index < 0 || index >= found.stack) {
    ThrowInternal("weight {}: no matrix {} of {}", Quoted(found.name), index, found.stack);
  }
  const std::lock_guard lock(state_->mutex);
  if (state_->cached_index != index) {
    EncodedMatrix encoded = found.load(index);
    encoded.format->Validate(
        encoded, fmt::format("{}: weight {}", state_->source->Path(), Quoted(found.name)));
    state_->cached = std::move(encoded);
    state_->cached_index = index;
  }
  return state_->cached;
}

void Weight::ReadRows(int64_t index, int64_t first, int64_t count, std::span<float> out,
                      DecodeRounding rounding) const {
  const EncodedMatrix encoded = Encoded(index);
  encoded.format->DecodeRows(encoded, first, count, out, rounding);
  for (const std::string& name : state_->found.tensor_names) {
    state_->source->FileOf(name).Verify();
  }
}

}  // namespace assay
