#include <algorithm>
#include <cmath>

#include "assay/report/bench_report.h"
#include "assay/report/number.h"

namespace assay {
namespace {

constexpr int kWidth = 72;
constexpr int kHeight = 12;

/// A range of doublings that maps to cells.
struct Scale {
  double low = 0;
  double high = 1;
  int cells = 1;

  int CellOf(double value) const {
    const double place = (std::log2(value) - low) / (high - low) * (cells - 1);
    return std::clamp(static_cast<int>(std::lround(place)), 0, cells - 1);
  }
  double ValueOf(int cell) const {
    return std::exp2(low + (high - low) * static_cast<double>(cell) / (cells - 1));
  }
};

struct Point {
  char letter;
  double intensity;  ///< operations for each byte
  double gflops;
};

std::vector<Point> PointsOf(const BenchReport& report, size_t op) {
  const BenchShape& shape = report.operators[op].shape;
  const double operations = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.k) *
                            static_cast<double>(shape.n);
  std::vector<Point> points;
  char letter = 'a';
  for (const BenchTrial& trial : report.trials) {
    if (trial.op != op) continue;
    if (trial.speed.gflops > 0 && !trial.speed.above_roof) {
      points.push_back(
          {letter, operations / static_cast<double>(trial.bytes_per_call), trial.speed.gflops});
    }
    letter = letter == 'z' ? 'A' : static_cast<char>(letter + 1);
  }
  return points;
}

std::string Legend(const BenchReport& report, size_t op) {
  std::string text;
  char letter = 'a';
  for (const BenchTrial& trial : report.trials) {
    if (trial.op != op) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " · ", letter, trial.variant.spec);
    letter = letter == 'z' ? 'A' : static_cast<char>(letter + 1);
  }
  return text + "\n";
}

}  // namespace

std::string RooflineText(const BenchReport& report, size_t op) {
  const BenchRoof& roof = report.operators[op].roof;
  const std::vector<Point> points = PointsOf(report, op);
  if (points.empty() || roof.read_gb_per_s <= 0 || roof.peak_gflops <= 0) return {};
  const double ridge = roof.peak_gflops / roof.read_gb_per_s;
  double least = points.front().gflops;
  double left = std::min(points.front().intensity, ridge);
  double right = std::max(points.front().intensity, ridge);
  for (const Point& point : points) {
    least = std::min(least, point.gflops);
    left = std::min(left, point.intensity);
    right = std::max(right, point.intensity);
  }
  const Scale x{std::log2(left) - 1, std::log2(right) + 1, kWidth};
  const Scale y{std::log2(least) - 0.5, std::log2(roof.peak_gflops) + 0.25, kHeight};
  std::vector<std::string> rows(kHeight, std::string(kWidth, ' '));
  for (int column = 0; column < kWidth; ++column) {
    const double slope = x.ValueOf(column) * roof.read_gb_per_s;
    const bool flat = slope >= roof.peak_gflops;
    const double height = std::min(slope, roof.peak_gflops);
    if (height < y.ValueOf(0)) continue;
    rows[static_cast<size_t>(y.CellOf(height))][static_cast<size_t>(column)] = flat ? '-' : '/';
  }
  for (const Point& point : points) {
    char& cell = rows[static_cast<size_t>(y.CellOf(point.gflops))]
                     [static_cast<size_t>(x.CellOf(point.intensity))];
    cell = cell == ' ' || cell == '-' || cell == '/' ? point.letter : '*';
  }
  std::string text = "GFLOP/s\n";
  for (int row = kHeight - 1; row >= 0; --row) {
    const bool labelled = row % 3 == 2 || row == 0;
    std::string line = fmt::format("{:>9} |{}", labelled ? Significant(y.ValueOf(row), 2) : "",
                                   rows[static_cast<size_t>(row)]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  std::string axis(kWidth + 10, ' ');
  for (int column = 0; column < kWidth - 5; column += 14) {
    const std::string label = Significant(x.ValueOf(column), 2);
    axis.replace(static_cast<size_t>(column), label.size(), label);
  }
  axis.erase(axis.find_last_not_of(' ') + 1);
  text += fmt::format("{:>9} +{}\n{:>11}{}  operations per byte\n", "", std::string(kWidth, '-'),
                      "", axis);
  return text + Legend(report, op);
}

}  // namespace assay
