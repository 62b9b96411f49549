#include "assay/formats/ggml_file_type.h"

#include <algorithm>
#include <array>

#include "assay/formats/ggml_type.h"

namespace assay {
namespace {

// For each type the mixture that is plainest comes first.
constexpr std::array kFileTypes = {
    GgmlFileType{0, "F32", "F32"},          GgmlFileType{1, "F16", "F16"},
    GgmlFileType{2, "Q4_0", "Q4_0"},        GgmlFileType{3, "Q4_1", "Q4_1"},
    GgmlFileType{7, "Q8_0", "Q8_0"},        GgmlFileType{8, "Q5_0", "Q5_0"},
    GgmlFileType{9, "Q5_1", "Q5_1"},        GgmlFileType{10, "Q2_K", "Q2_K"},
    GgmlFileType{11, "Q3_K_S", "Q3_K"},     GgmlFileType{12, "Q3_K_M", "Q3_K"},
    GgmlFileType{13, "Q3_K_L", "Q3_K"},     GgmlFileType{14, "Q4_K_S", "Q4_K"},
    GgmlFileType{15, "Q4_K_M", "Q4_K"},     GgmlFileType{16, "Q5_K_S", "Q5_K"},
    GgmlFileType{17, "Q5_K_M", "Q5_K"},     GgmlFileType{18, "Q6_K", "Q6_K"},
    GgmlFileType{19, "IQ2_XXS", "IQ2_XXS"}, GgmlFileType{20, "IQ2_XS", "IQ2_XS"},
    GgmlFileType{21, "Q2_K_S", "Q2_K"},     GgmlFileType{23, "IQ3_XXS", "IQ3_XXS"},
    GgmlFileType{24, "IQ1_S", "IQ1_S"},     GgmlFileType{25, "IQ4_NL", "IQ4_NL"},
    GgmlFileType{26, "IQ3_S", "IQ3_S"},     GgmlFileType{22, "IQ3_XS", "IQ3_S"},
    GgmlFileType{27, "IQ3_M", "IQ3_S"},     GgmlFileType{28, "IQ2_S", "IQ2_S"},
    GgmlFileType{29, "IQ2_M", "IQ2_S"},     GgmlFileType{30, "IQ4_XS", "IQ4_XS"},
    GgmlFileType{31, "IQ1_M", "IQ1_M"},     GgmlFileType{32, "BF16", "BF16"},
    GgmlFileType{36, "TQ1_0", "TQ1_0"},     GgmlFileType{37, "TQ2_0", "TQ2_0"},
    GgmlFileType{38, "MXFP4_MOE", "MXFP4"}, GgmlFileType{39, "NVFP4", "NVFP4"},
    GgmlFileType{40, "Q1_0", "Q1_0"},       GgmlFileType{41, "Q2_0", "Q2_0"},
};

}  // namespace

const GgmlFileType* FindGgmlFileType(int64_t id) noexcept {
  const auto* found = std::ranges::find(kFileTypes, id, &GgmlFileType::id);
  return found == kFileTypes.end() ? nullptr : found;
}

const GgmlFileType* FileTypeOf(const GgmlType& type) noexcept {
  const auto* found = std::ranges::find(kFileTypes, type.name, &GgmlFileType::type);
  return found == kFileTypes.end() ? nullptr : found;
}

}  // namespace assay
