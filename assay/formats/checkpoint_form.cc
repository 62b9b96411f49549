#include "assay/formats/checkpoint_form.h"

namespace assay {

std::map<std::string, std::string> CheckpointForm::SideFiles(
    const Format& /*model_format*/, const std::vector<WrittenWeight>& /*weights*/) const {
  return {};
}

}  // namespace assay
