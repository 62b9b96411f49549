#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace assay {

/// Says in words where a matrix differs, when the differences have a shape: "every 16th column
/// from 128", "columns 16 to 31 of every 64, rows 8 to 11". Empty when they are scattered, or when
/// everything differs.
/// Why:      a wrong stride, a swapped half, a forgotten group shows as such a pattern, and the
///           pattern tells which index calculation to look at.
/// Method:   the rows and the columns that hold any difference; they describe it when at least
///           three quarters of their crossings differ.
/// `row_counts`, `column_counts`: differing elements of each row, each column.
std::string DescribeDifferences(std::span<const int64_t> row_counts,
                                std::span<const int64_t> column_counts);

}  // namespace assay
