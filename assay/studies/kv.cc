#include "assay/studies/kv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "assay/base/error.h"
#include "assay/base/glob.h"
#include "assay/base/text.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/deepseek_cache.h"
#include "assay/measure/timing.h"

namespace assay {
namespace {

constexpr size_t kNumWorst = 5;

/// One capture and the formats it goes through.
struct Job {
  const KvCapture* capture = nullptr;
  std::vector<FormatPtr> formats;
};

std::string Where(const KvCapture& capture) {
  return fmt::format("{}: {}", capture.path, Quoted(capture.name));
}

/// "ds41-window-fp8, …": cache formats that hold this width; any others when none of those does.
std::string FormatsThatFit(const KvCapture& capture) {
  const auto fits = [&](const FormatFamily& family) {
    std::vector<std::string> names;
    for (std::string& name : family.names()) {
      if (!Format::Parse(name)->WhyNot(capture.rows(), capture.cols, capture.dtype)) {
        names.push_back(std::move(name));
      }
    }
    return names;
  };
  std::vector<std::string> names = fits(kDeepSeekCacheFamily);
  if (names.empty()) {
    for (const FormatFamily* family : FormatCatalogue()) {
      for (std::string& name : fits(*family)) names.push_back(std::move(name));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// A mapping that fits nothing is more likely a slip than a wish.
void RequireMappingsFit(const KvOptions& options, const std::vector<KvCapture>& captures) {
  for (const KvMapping& mapping : options.map) {
    if (std::ranges::any_of(captures, [&](const KvCapture& capture) {
          return GlobMatch(mapping.pattern, capture.name);
        })) {
      continue;
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min<size_t>(captures.size(), 4); ++i) {
      names.push_back(Quoted(captures[i].name));
    }
    ThrowUsage("--map {}: fits none of the {} captures ({}{})", Quoted(mapping.pattern),
               captures.size(), fmt::join(names, ", "),
               captures.size() > names.size() ? ", …" : "");
  }
}

std::vector<std::string> FormatsFor(const KvOptions& options, const KvCapture& capture) {
  std::vector<std::string> names;
  if (options.map.empty()) {
    if (auto name = DefaultKvFormat(capture.name)) names.push_back(std::move(*name));
    return names;
  }
  for (const KvMapping& mapping : options.map) {
    if (!GlobMatch(mapping.pattern, capture.name)) continue;
    for (const std::string& name : mapping.formats) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::vector<Job> PlanJobs(const KvOptions& options, const std::vector<KvCapture>& captures,
                          KvReport& report) {
  RequireMappingsFit(options, captures);
  std::vector<Job> jobs;
  for (const KvCapture& capture : captures) {
    const std::vector<std::string> names = FormatsFor(options, capture);
    if (names.empty()) {
      report.skipped.push_back(
          {capture.path, capture.name, "",
           options.map.empty() ? "its name asks for no format; see --map" : "fits no --map"});
      continue;
    }
    Job job{&capture, {}};
    for (const std::string& name : names) {
      job.formats.push_back(Format::Parse(name));
      const Format& format = *job.formats.back();
      if (const auto reason = format.WhyNot(capture.rows(), capture.cols, capture.dtype)) {
        ThrowUsage("{}: {}: {}; formats that fit {}: {}", Where(capture), name, *reason,
                   capture.shape.ToString(), FormatsThatFit(capture));
      }
    }
    jobs.push_back(std::move(job));
  }
  if (jobs.empty()) {
    if (captures.empty()) {
      ThrowInput("{}: no capture: expected F32, F16 or BF16 tensors [tokens, dim]",
                 fmt::join(options.captures, ", "));
    }
    const KvCapture& first = captures.front();
    ThrowUsage("{}: its name asks for no format; say --map '{}=FORMAT'; formats that fit {}: {}",
               Where(first), first.name, first.shape.ToString(), FormatsThatFit(first));
  }
  return jobs;
}

std::vector<KvTotal> TotalsOf(const std::vector<KvRecord>& records) {
  struct Sums {
    double d2 = 0;
    double f16_d2 = 0;
    double x2 = 0;
    double f16_x2 = 0;
  };
  std::vector<KvTotal> totals;
  std::vector<Sums> sums;
  for (size_t i = 0; i < records.size(); ++i) {
    const KvRecord& record = records[i];
    const auto found = std::ranges::find_if(totals, [&](const KvTotal& total) {
      return total.format == record.format && total.rounding == record.rounding;
    });
    const auto at = static_cast<size_t>(found - totals.begin());
    if (found == totals.end()) {
      totals.emplace_back();
      totals.back().format = record.format;
      totals.back().rounding = record.rounding;
      sums.emplace_back();
    }
    KvTotal& total = totals[at];
    ++total.num_captures;
    total.num_values += record.native.num_values;
    total.num_bytes += record.num_bytes;
    const auto add = [](const ErrorStats& stats, double& d2, double& x2) {
      const auto count = static_cast<double>(stats.num_values);
      d2 += stats.rmse * stats.rmse * count;
      x2 += stats.rhs_rms * stats.rhs_rms * count;
    };
    if (!record.native.finite) {
      ++total.num_not_finite;
      continue;
    }
    add(record.native, sums[at].d2, sums[at].x2);
    if (record.f16.finite) add(record.f16, sums[at].f16_d2, sums[at].f16_x2);
    total.worst.push_back(i);
  }
  const auto relative = [](double d2, double x2) -> std::optional<double> {
    if (x2 > 0) return std::sqrt(d2 / x2);
    return std::nullopt;
  };
  const auto badness = [&](size_t i) {
    return records[i].native.relative_rmse.value_or(std::numeric_limits<double>::infinity());
  };
  for (size_t t = 0; t < totals.size(); ++t) {
    KvTotal& total = totals[t];
    total.bits_per_value =
        8 * static_cast<double>(total.num_bytes) / static_cast<double>(total.num_values);
    total.relative_l2 = relative(sums[t].d2, sums[t].x2);
    total.f16_relative_l2 = relative(sums[t].f16_d2, sums[t].f16_x2);
    std::ranges::stable_sort(total.worst,
                             [&](size_t a, size_t b) { return badness(a) > badness(b); });
    total.worst.resize(std::min(kNumWorst, total.worst.size()));
  }
  return totals;
}

}  // namespace

KvMapping KvMapping::Parse(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    ThrowUsage("--map {}: expected GLOB=FORMAT[,FORMAT…], such as 'kv-*=ds41-window-fp8'",
               Quoted(text));
  }
  KvMapping mapping{text.substr(0, equals), {}};
  for (size_t first = equals + 1; first <= text.size();) {
    const size_t comma = std::min(text.find(',', first), text.size());
    mapping.formats.push_back(Format::Parse(text.substr(first, comma - first))->Name());
    first = comma + 1;
  }
  return mapping;
}

std::optional<std::string> DefaultKvFormat(const std::string& name) {
  struct Rule {
    std::string_view part;
    std::string_view format;
  };
  constexpr std::array kRules = {
      Rule{"index", "ds41-index-fp4"},   Rule{"idx", "ds41-index-fp4"},
      Rule{"main", "ds41-main-fp4"},     Rule{"comp", "ds41-main-fp4"},
      Rule{"window", "ds41-window-fp8"}, Rule{"kv", "ds41-window-fp8"},
  };
  for (const Rule& rule : kRules) {
    if (name.find(rule.part) != std::string::npos) return std::string(rule.format);
  }
  return std::nullopt;
}

KvReport RunKv(const KvOptions& options) {
  const Stopwatch watch;
  if (options.captures.empty() && options.synthetic_tokens <= 0) {
    ThrowUsage("no capture: expected a file or a folder, or --synthetic N");
  }
  KvCaptures opened = OpenKvCaptures(options.captures);
  if (options.synthetic_tokens > 0) {
    for (KvCapture& capture : SyntheticKvCaptures(options.synthetic_tokens, options.seed)) {
      opened.captures.push_back(std::move(capture));
    }
  }
  KvReport report;
  report.options = options;
  report.tokens = opened.tokens;
  for (NoKvCapture& other : opened.others) {
    report.skipped.push_back({std::move(other.path), std::move(other.name), "", other.reason});
  }
  const std::vector<Job> jobs = PlanJobs(options, opened.captures, report);

  Progress progress;
  for (const Job& job : jobs) {
    progress.num_items += static_cast<int64_t>(job.formats.size() * options.roundings.size());
    progress.num_bytes += job.capture->num_bytes();
  }
  const auto tell = [&] {
    if (options.progress) options.progress(progress);
  };
  for (const Job& job : jobs) {
    const KvCapture& capture = *job.capture;
    const Tensor rows = capture.Load();
    std::vector<KvRecord> measured;
    for (const KvRounding rounding : options.roundings) {
      const Tensor rounded = RoundCapture(capture, rows, rounding);
      for (const FormatPtr& format : job.formats) {
        tell();
        try {
          measured.push_back(MeasureKv(capture, rounded, format, rounding));
        } catch (const Error& error) {
          // Finite values beyond a format's range: the others still say something.
          if (error.kind() != ErrorKind::kInput) throw;
          report.skipped.push_back({capture.path, capture.name, format->Name(), error.what()});
        }
        ++progress.items_done;
      }
    }
    // By format, as people compare roundings.
    for (const FormatPtr& format : job.formats) {
      for (const KvRecord& record : measured) {
        if (record.format == format->Name()) report.records.push_back(record);
      }
    }
    ++report.num_captures;
    report.num_values += capture.rows() * capture.cols;
    progress.bytes_done += capture.num_bytes();
  }
  if (report.records.empty()) ThrowInput("{}", report.skipped.back().reason);
  for (const ContainerPtr& file : opened.files) {
    file->Verify();
    for (const std::string& note : file->Notes()) {
      report.notes.push_back(fmt::format("{}: {}", file->path(), note));
    }
  }
  tell();
  report.totals = TotalsOf(report.records);
  report.seconds = watch.Seconds();
  return report;
}

}  // namespace assay
