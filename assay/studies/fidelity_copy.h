#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "assay/checkpoint/model.h"
#include "assay/studies/border.h"
#include "assay/tensor/matrix_view.h"

namespace assay {

/// The matrix of a copy that stands for one of the source.
struct CopyMatrix {
  const Weight* weight = nullptr;  ///< null when there is none
  int64_t index = 0;
  const BorderPair* pair = nullptr;  ///< across the border

  /// Why it does not stand for that weight of the source; nothing when it does.
  std::optional<std::string> WhyNot(const Weight& source) const;
};

/// By name, or through the border where there is one.
CopyMatrix FindCopy(const Model& copy, const Border* border, const Weight& source, int64_t index);

/// `decoded`, rows as the copy has them, in the order of the source.
RowReader InOrderOfSource(const Border& border, const BorderPair& pair, const Weight& source,
                          RowReader decoded);

/// Border::Unexpected of the transformation under which alone the two fit; empty when they fit as
/// expected, or not at all.
std::string FitsOnly(const Border& border, const BorderPair& pair, const MatrixView& source,
                     const RowReader& decoded);

}  // namespace assay
