// Opening a model: 2,000 bf16 tensors, 20 GB, in 1, 8 or 160 shards. The files are sparse: only
// headers are ever read.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "assay/checkpoint/model.h"
#include "assay/checkpoint/writer.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr int kTensors = 2000;
constexpr int64_t kRows = 2048;
constexpr int64_t kCols = 2560;  // 2,000 · 2,048 · 2,560 · 2 bytes = 21 GB

// A folder under the system's temporary one, removed at the end.
class SparseModel {
 public:
  explicit SparseModel(int64_t num_shards) {
    path_ = (fs::temp_directory_path() / "assay-bench-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) std::abort();
    std::vector<TensorSpec> tensors;
    for (int i = 0; i < kTensors; ++i) {
      tensors.push_back({fmt::format("model.layers.{}.block_{}.proj.weight", i / 8, i % 8),
                         DType::kBF16, Shape{kRows, kCols}});
    }
    const int64_t num_bytes = kTensors * kRows * kCols * 2;
    std::string weight_map;
    for (const ShardPlan& shard : PlanShards(std::move(tensors), num_bytes / num_shards)) {
      const SafetensorsLayout layout = LayOutSafetensors(shard.tensors, {}, {}, "bench");
      const std::string file = path_ + "/" + shard.file_name;
      std::ofstream(file, std::ios::binary) << layout.head;
      fs::resize_file(file, static_cast<uintmax_t>(layout.num_file_bytes));
      for (const TensorSpec& tensor : shard.tensors) {
        weight_map += fmt::format("{}\"{}\": \"{}\"", weight_map.empty() ? "" : ", ", tensor.name,
                                  shard.file_name);
      }
    }
    std::ofstream(path_ + "/model.safetensors.index.json")
        << "{\"metadata\": {\"total_size\": " << num_bytes << "}, \"weight_map\": {" << weight_map
        << "}}";
  }
  ~SparseModel() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  SparseModel(const SparseModel&) = delete;
  SparseModel& operator=(const SparseModel&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void OpenModel(benchmark::State& state) {
  const SparseModel sparse(state.range(0));
  for (auto _ : state) {
    const Model model = Model::Open(sparse.path());
    if (model.Tensors().size() != kTensors || !model.Notes().empty()) {
      state.SkipWithError("not opened as a whole");
    }
    benchmark::DoNotOptimize(model.Tensors().data());
  }
}
BENCHMARK(OpenModel)->Arg(1)->Arg(8)->Arg(160)->Unit(benchmark::kMillisecond);

void OpenModelAndFindWeights(benchmark::State& state) {
  const SparseModel sparse(state.range(0));
  for (auto _ : state) {
    const Model model = Model::Open(sparse.path());
    if (model.Weights().size() != kTensors) state.SkipWithError("weights are missing");
  }
}
BENCHMARK(OpenModelAndFindWeights)->Arg(1)->Arg(8)->Arg(160)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace assay
