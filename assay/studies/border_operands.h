#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "assay/studies/border.h"
#include "assay/studies/operand.h"

namespace assay {

/// Tensors of A and B on either side of the border, under the names that they have in the maps
/// below.
struct Crossing {
  const BorderPair* pair = nullptr;
  std::string a;
  std::string b;
  Operand folder;  ///< as stored, its parts put together
  Operand file;
};

/// Replaces the operands of each pair by what is compared: what the converter did is undone, and
/// several tensors of one side become one, under the name that the pair shows.
///   rows permuted       the file's rows in the order of the folder
///   1 added to norms    added to the folder's values too, in f16 for those, else in f32: exact
///   experts, rows       put together
/// Pairs with a name in A that `is_renamed` stay as they are; so do, with a note, those whose parts
/// do not make up one tensor. What is returned points into `border`.
std::vector<Crossing> CrossBorder(const Border& border, std::map<std::string, Operand>& a,
                                  std::map<std::string, Operand>& b,
                                  const std::function<bool(const std::string&)>& is_renamed,
                                  std::vector<std::string>& notes);

/// Border::Unexpected of a pair whose figures may be those of another transformation; empty when
/// they are not. Cost: FindTransformation.
std::string FitsOnly(const Border& border, const Crossing& crossing);

}  // namespace assay
