#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "assay/checkpoint/safetensors.h"
#include "assay/tensor/tensor.h"
#include "tests/support/paths.h"

namespace assay::test {

/// A safetensors file below tests/data.
class Fixture {
 public:
  /// `relative_path`: "mlx/affine4g64-bf16.safetensors".
  explicit Fixture(const std::string& relative_path);

  /// Errors: input when there is none.
  Tensor Get(std::string_view name) const { return file_->Get(name); }
  bool Has(std::string_view name) const { return file_->Find(name).has_value(); }
  /// Sorted.
  std::vector<std::string> Names() const;
  /// A value of `__metadata__`; empty when there is none.
  std::string Metadata(std::string_view key) const;

 private:
  std::shared_ptr<const SafetensorsFile> file_;
};

/// Relative paths of the files `directory`/`prefix`*.safetensors, sorted.
std::vector<std::string> FixtureFiles(const std::string& directory, std::string_view prefix);

/// The content of a file below tests/data.
std::string ReadTestData(const std::string& relative_path);

}  // namespace assay::test
