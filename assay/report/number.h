#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace assay {

/// "4,699,001,344".
std::string WithThousands(int64_t value);

/// Bytes for eyes, in decimal units: "512 B", "4.2 MB", "3.4 GB".
std::string HumanBytes(int64_t num_bytes);

/// A count for eyes: "512", "3.6 M", "6.1 B".
std::string HumanCount(int64_t count);

/// With so many decimals: Fixed(4.5, 2) = "4.50"; "–" for nothing, "nan", "inf".
std::string Fixed(std::optional<double> value, int decimals);

/// With so many significant digits: "0.0951", "20.4", "1.0e-7" below 1e-4 and from 1e6; "0" for 0;
/// "–" for nothing.
std::string Significant(std::optional<double> value, int digits);

/// "8 s", "2 min 5 s", "3 h 10 min".
std::string HumanSeconds(double seconds);

/// "0.82 µs", "1.42 ms", "4.6 s".
std::string HumanMilliseconds(double milliseconds);

}  // namespace assay
