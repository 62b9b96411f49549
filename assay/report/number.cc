#include "assay/report/number.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace assay {
namespace {

constexpr char kNothing[] = "–";

std::string Scaled(double value, const char* unit) {
  // One decimal up to 99.9, none above: three digits or fewer, enough to compare by eye.
  return fmt::format("{:.{}f} {}", value, value < 99.95 ? 1 : 0, unit);
}

}  // namespace

std::string WithThousands(int64_t value) {
  const std::string plain = fmt::format("{}", value);
  const size_t sign = value < 0 ? 1 : 0;
  std::string digits;
  for (size_t i = 0; i < plain.size(); ++i) {
    if (i > sign && (plain.size() - i) % 3 == 0) digits += ',';
    digits += plain[i];
  }
  return digits;
}

std::string HumanBytes(int64_t num_bytes) {
  constexpr std::array kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (num_bytes < 1000) return fmt::format("{} B", num_bytes);
  auto value = static_cast<double>(num_bytes);
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return Scaled(value, kUnits[unit]);
}

std::string HumanCount(int64_t count) {
  constexpr std::array kUnits = {"k", "M", "B", "T"};
  if (count < 1000) return fmt::format("{}", count);
  auto value = static_cast<double>(count);
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return Scaled(value, kUnits[unit]);
}

std::string Fixed(std::optional<double> value, int decimals) {
  return value ? fmt::format("{:.{}f}", *value, decimals) : kNothing;
}

std::string Significant(std::optional<double> value, int digits) {
  if (!value) return kNothing;
  if (*value == 0) return "0";
  if (!std::isfinite(*value)) return fmt::format("{}", *value);
  const double magnitude = std::abs(*value);
  if (magnitude < 1e-4 || magnitude >= 1e6) {
    const std::string text = fmt::format("{:.{}e}", *value, digits > 2 ? digits - 2 : digits - 1);
    // "1.0e-07" → "1.0e-7"
    const size_t exponent = text.find('e') + 2;
    const size_t leading = text.find_first_not_of('0', exponent);
    const size_t keep = leading == std::string::npos ? text.size() - 1 : leading;
    return text.substr(0, exponent) + text.substr(keep);
  }
  const int before = static_cast<int>(std::floor(std::log10(magnitude))) + 1;
  return fmt::format("{:.{}f}", *value, digits > before ? digits - before : 0);
}

std::string HumanSeconds(double seconds) {
  if (!(seconds >= 0)) return kNothing;
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e12)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string HumanMilliseconds(double milliseconds) {
  if (milliseconds < 0.1) return fmt::format("{:.2f} µs", milliseconds * 1e3);
  if (milliseconds < 10) return fmt::format("{:.2f} ms", milliseconds);
  if (milliseconds < 1e4) return fmt::format("{:.1f} ms", milliseconds);
  return fmt::format("{:.1f} s", milliseconds / 1e3);
}

}  // namespace assay
