#include <algorithm>
#include <set>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/json_text.h"
#include "assay/checkpoint/mapped_file.h"
#include "assay/report/bench_report.h"

namespace assay {
namespace {

[[noreturn]] void ThrowBadTrial(const std::string& path, size_t index, std::string_view expected) {
  ThrowInput("{}: trials[{}]: expected {}", path, index, expected);
}

BenchBaseline::Trial ParseTrial(const nlohmann::json& json, const std::string& path, size_t index) {
  BenchBaseline::Trial trial;
  if (!json.is_object()) ThrowBadTrial(path, index, "an object");
  const auto text = [&](const char* key) -> std::string {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) {
      ThrowBadTrial(path, index, fmt::format("a string as \"{}\"", key));
    }
    return found->get<std::string>();
  };
  trial.op = text("operator");
  trial.variant = text("variant");
  if (json.contains("checksum")) trial.checksum = text("checksum");
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array() || shape->size() != 3 ||
      !std::ranges::all_of(*shape, [](const auto& size) { return size.is_number_unsigned(); })) {
    ThrowBadTrial(path, index, "[M, K, N] as \"shape\"");
  }
  trial.m = (*shape)[0].get<int64_t>();
  trial.k = (*shape)[1].get<int64_t>();
  trial.n = (*shape)[2].get<int64_t>();
  const auto samples = json.find("samples_ms");
  if (samples == json.end() || !samples->is_array() ||
      !std::ranges::all_of(*samples, [](const auto& ms) { return ms.is_number(); })) {
    ThrowBadTrial(path, index, "numbers as \"samples_ms\"");
  }
  TimingSamples all;
  std::set<uint64_t> preempted;
  for (const auto& at : json.value("preempted_samples", nlohmann::json::array())) {
    if (at.is_number_unsigned()) preempted.insert(at.get<uint64_t>());
  }
  for (size_t i = 0; i < samples->size(); ++i) {
    all.Add((*samples)[i].get<double>(), preempted.contains(i));
  }
  trial.samples_ms = KeptSamples(all);
  return trial;
}

std::string BaselineMachine(const nlohmann::json& report) {
  const auto environment = report.find("environment");
  if (environment == report.end() || !environment->is_object()) return "unknown machine";
  Machine machine;
  const auto text = [&](const char* key) -> std::string {
    const auto found = environment->find(key);
    return found != environment->end() && found->is_string() ? found->get<std::string>() : "";
  };
  machine.cpu = text("cpu");
  machine.isa = text("isa");
  if (machine.cpu.empty()) return text("platform");
  const auto threads = environment->find("threads");
  if (threads != environment->end() && threads->is_number_unsigned()) {
    machine.threads = static_cast<int>(std::min<int64_t>(threads->get<int64_t>(), 1 << 20));
  }
  return MachineLine(machine);
}

/// Read roofs are stated once an operator.
void AddReadRoofs(const nlohmann::json& report, BenchBaseline& baseline) {
  const auto operators = report.find("operators");
  if (operators == report.end() || !operators->is_array()) return;
  for (const auto& op : *operators) {
    if (!op.is_object() || !op.contains("operator") || !op.contains("read_gb_per_s")) continue;
    if (!op["read_gb_per_s"].is_number()) continue;
    for (BenchBaseline::Trial& trial : baseline.trials) {
      const nlohmann::json shape = {trial.m, trial.k, trial.n};
      if (op["operator"] == trial.op && op.value("shape", nlohmann::json()) == shape) {
        trial.read_gb_per_s = op["read_gb_per_s"].get<double>();
      }
    }
  }
}

}  // namespace

std::string MachineLine(const Machine& machine) {
  return fmt::format("{}, {}, {} {}", machine.cpu, machine.isa, machine.threads,
                     machine.threads == 1 ? "thread" : "threads");
}

BenchBaseline ReadBenchBaseline(const std::string& path) {
  const auto file = MappedFile::Open(path);
  const nlohmann::json report = ParseJsonObject(AsText(file->bytes()), path);
  file->Verify();
  BenchBaseline baseline;
  baseline.path = path;
  baseline.machine = BaselineMachine(report);
  const auto trials = report.find("trials");
  if (trials == report.end() || !trials->is_array() || trials->empty()) {
    ThrowInput("{}: expected a report of assay bench, found no \"trials\"", path);
  }
  for (size_t i = 0; i < trials->size(); ++i) {
    baseline.trials.push_back(ParseTrial((*trials)[i], path, i));
  }
  AddReadRoofs(report, baseline);
  return baseline;
}

}  // namespace assay
