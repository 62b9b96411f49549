#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace assay::test {

/// Digest in lower-case hexadecimal. Source: FIPS 180-4.
std::string Sha256(std::span<const std::byte> bytes);

}  // namespace assay::test
