#include "assay/formats/checkpoint_form.h"

namespace assay {

std::string ModuleOf(std::string_view weight_name) {
  if (weight_name.ends_with(kWeightSuffix)) weight_name.remove_suffix(kWeightSuffix.size());
  return std::string(weight_name);
}

Shape CheckpointForm::StoredShape(const PlaneSpec& plane, const Shape& plain_shape) const {
  if (plain_shape.rank() <= 2) return plane.shape;
  std::vector<int64_t> dims(plain_shape.dims().begin(), plain_shape.dims().end() - 2);
  dims.insert(dims.end(), plane.shape.dims().begin(), plane.shape.dims().end());
  return Shape(std::move(dims));
}

std::map<std::string, std::string> CheckpointForm::SideFiles(
    const Format& /*model_format*/, const std::vector<WrittenWeight>& /*weights*/) const {
  return {};
}

}  // namespace assay
