#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "assay/base/error.h"

namespace assay::test {

/// What `body` throws as an assay::Error; fails the test when it throws none.
template <typename Body>
std::string MessageOf(Body&& body, ErrorKind kind = ErrorKind::kInput) {
  try {
    std::forward<Body>(body)();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace assay::test
