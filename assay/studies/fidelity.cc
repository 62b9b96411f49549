#include "assay/studies/fidelity.h"

#include <algorithm>
#include <map>
#include <set>

#include "assay/base/error.h"
#include "assay/base/error_context.h"
#include "assay/base/glob.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "assay/studies/fidelity_copy.h"
#include "assay/studies/fidelity_matrix.h"
#include "assay/studies/fidelity_totals.h"
#include "assay/tensor/matrix_view.h"

namespace assay {
namespace {

// A timing is repeated while all its samples together took less than this: small matrices get
// their medians, and large ones do not multiply the time of a study.
constexpr double kTimingBudgetMs = 10;

template <typename Body>
void Repeat(int repeats, TimingSamples& samples, const Body& body) {
  double total = 0;
  for (const TimingSample& sample : samples.samples()) total += sample.ms;
  while (static_cast<int>(samples.samples().size()) < repeats && total < kTimingBudgetMs) {
    const Stopwatch stopwatch;
    body();
    const double ms = stopwatch.Milliseconds();
    samples.Add(ms);
    total += ms;
  }
}

// One matrix as it is encoded from: the stored plane of a plain weight, or a decoded copy.
struct SourceMatrix {
  Tensor values;
  int64_t rows;
  int64_t cols;

  MatrixView View() const { return {values.view(), rows, cols}; }
};

SourceMatrix LoadSource(const Weight& weight, int64_t index) {
  const EncodedMatrix encoded = weight.Encoded(index);
  if (weight.plain()) return {encoded.planes.at(0).tensor, weight.rows(), weight.cols()};
  Tensor decoded = Tensor::Allocate(weight.dtype(), Shape{weight.rows(), weight.cols()});
  weight.format()->DecodeRowsTo(encoded, 0, weight.rows(), weight.dtype(), decoded.mutable_bytes());
  return {decoded, weight.rows(), weight.cols()};
}

std::string ComponentOf(const std::string& name) { return name.substr(0, name.find('.')); }

class FidelityStudy {
 public:
  explicit FidelityStudy(const FidelityOptions& options)
      : options_(options), model_(Model::Open(options.model)) {
    report_.options = options;
    for (const std::string& name : options.formats) formats_.push_back(Format::Parse(name));
    if (!options.against.empty()) {
      copy_.emplace(Model::Open(options.against));
      border_ = Border::Between(model_, *copy_);
      if (border_) report_.border.emplace().architecture = border_->architecture();
    }
    if (formats_.empty() && !copy_) {
      ThrowUsage("nothing to measure: expected --format or --against");
    }
    if (!options.activations.empty()) {
      activations_ = LoadedActivations(options.activations);
    } else if (options.tokens > 0) {
      activations_ = SyntheticActivations(options.tokens, options.seed);
    }
    if (activations_) report_.activation_tokens = activations_->num_tokens();
  }

  FidelityReport Run() {
    const Stopwatch stopwatch;
    SelectWeights();
    int64_t done = 0;
    Progress progress{0, static_cast<int64_t>(weights_.size()), 0, 0};
    for (const Weight* weight : weights_) progress.num_bytes += weight->num_bytes();
    for (const Weight* weight : weights_) {
      if (options_.progress) options_.progress(progress);
      for (int64_t index = 0; index < weight->stack(); ++index) {
        NamingFile(options_.model, [&] { MeasureMatrix(*weight, index); });
      }
      progress.items_done = ++done;
      progress.bytes_done += weight->num_bytes();
    }
    if (options_.progress) options_.progress(progress);
    model_.Verify();
    if (copy_) copy_->Verify();
    if (!options_.activations.empty() && !any_width_fits_) {
      ThrowUsage("{}: no weight has the activations' width", options_.activations);
    }
    AddTotals();
    report_.seconds = stopwatch.Seconds();
    return std::move(report_);
  }

 private:
  void SelectWeights() {
    std::set<std::string> used;
    for (const Weight& weight : model_.Weights()) {
      used.insert(weight.tensor_names().begin(), weight.tensor_names().end());
      if (!options_.tensors.empty() && !GlobMatchAny(options_.tensors, weight.name())) continue;
      if (weight.num_values() == 0) {
        report_.skipped.push_back({weight.name(), "", "it is empty", 0});
        continue;
      }
      weights_.push_back(&weight);
      ++report_.num_weights;
      report_.num_values += weight.num_values();
    }
    if (weights_.empty() && options_.tensors.empty()) {
      ThrowInput("{}: no weight to measure: it holds no 2-D or 3-D floating tensor",
                 options_.model);
    }
    if (weights_.empty()) ThrowUsage("{}: no weight to measure fits --tensor", options_.model);
    report_.num_tensors = static_cast<int64_t>(model_.Tensors().size());
    for (const StoredTensor& tensor : model_.Tensors()) {
      const int64_t num_bytes = tensor.shape.CheckedNumBytes(tensor.dtype).value_or(0);
      report_.model_bytes += num_bytes;
      if (used.contains(tensor.name)) continue;
      ++report_.kept_tensors;
      report_.kept_bytes += num_bytes;
    }
    report_.notes = model_.Notes();
    const std::vector<std::string>& notes = model_.WeightNotes();
    report_.notes.insert(report_.notes.end(), notes.begin(), notes.end());
    if (!border_) return;
    report_.notes.insert(report_.notes.end(), border_->notes().begin(), border_->notes().end());
  }

  const std::vector<int64_t>& RowsOf(int64_t rows) {
    const auto [entry, is_new] = rows_.try_emplace(rows);
    if (is_new) {
      entry->second = EvenRows(rows, options_.rows);
      if (static_cast<int64_t>(entry->second.size()) < rows) {
        report_.sampled_rows.emplace_back(rows, entry->second);
      }
    }
    return entry->second;
  }

  FidelityResult Describe(const Weight& weight, int64_t index, const FormatPtr& format) {
    FidelityResult result;
    result.tensor = weight.name();
    result.component = ComponentOf(weight.name());
    result.matrix = weight.stacked() ? index : -1;
    result.source_shape = Shape{weight.rows(), weight.cols()};
    result.source = weight.format()->Name();
    result.format = format->Name();
    result.sample_rows = static_cast<int64_t>(RowsOf(weight.rows()).size());
    if (!weight.plain()) {
      result.notes.push_back(fmt::format("source decoded from {}", weight.format()->Name()));
    }
    return result;
  }

  static RowReader Decoder(const EncodedMatrix& encoded) {
    return [&encoded](int64_t first, int64_t count, std::span<float> out) {
      encoded.format->DecodeRows(encoded, first, count, out);
    };
  }

  /// `decoded` gives the rows of `encoded` in the order of the source.
  void Measure(FidelityResult result, const EncodedMatrix& encoded, const RowReader& decoded,
               MatrixComparison& comparison, const FidelityActivations* activations) {
    result.num_bytes = encoded.NumBytes();
    result.figures = encoded.format->Figures(encoded);
    result.bits_per_weight = 8.0 * static_cast<double>(result.num_bytes) /
                             static_cast<double>(encoded.rows * encoded.cols);
    const MatrixErrors errors = comparison.Compare(decoded);
    result.weight = errors.weight;
    result.matmul = errors.matmul;
    if (activations != nullptr && options_.repeats > 0) {
      const std::unique_ptr<Matmul> matmul = MakeMatmul(encoded, options_.strategy);
      const int64_t tokens = activations->packed.m();
      std::vector<float> y(static_cast<size_t>(tokens * encoded.rows));
      Repeat(options_.repeats, result.product, [&] {
        matmul->Run(tokens, std::as_bytes(std::span(activations->words)),
                    std::as_writable_bytes(std::span(y)));
      });
      result.implementation = matmul->Implementation();
    }
    report_.results.push_back(std::move(result));
  }

  static bool DecodesToTheSameBits(const EncodedMatrix& encoded, const MatrixView& source) {
    const std::span<const std::byte> original = source.RowBytes(0, source.rows());
    std::vector<std::byte> decoded(original.size());
    encoded.format->DecodeRowsTo(encoded, 0, encoded.rows, source.dtype(), decoded);
    return std::ranges::equal(original, decoded);
  }

  void MeasureMatrix(const Weight& weight, int64_t index) {
    const SourceMatrix source = LoadSource(weight, index);
    const MatrixView view = source.View();
    const FidelityActivations* activations =
        activations_ ? activations_->ForWidth(weight.cols()) : nullptr;
    any_width_fits_ = any_width_fits_ || activations != nullptr;
    MatrixComparison comparison(
        RowsOf(weight.rows()), weight.cols(),
        [&](int64_t first, int64_t count, std::span<float> out) {
          view.ReadRows(first, count, out);
        },
        activations);
    for (const FormatPtr& format : formats_) {
      if (const auto reason = format->WhyNot(weight.rows(), weight.cols(), view.dtype())) {
        if (index == 0) {
          report_.skipped.push_back({weight.name(), format->Name(), *reason, weight.num_bytes()});
        }
        continue;
      }
      FidelityResult result = Describe(weight, index, format);
      NoteWidth(result, activations);
      const EncodeOptions encode_options{weight.name(), {}};
      const Stopwatch stopwatch;
      const EncodedMatrix encoded = format->Encode(view, encode_options);
      result.encode.Add(stopwatch.Milliseconds());
      Repeat(options_.repeats, result.encode, [&] { format->Encode(view, encode_options); });
      if (format->Lossless() && encoded.dtype == view.dtype()) {
        result.bits_identical = DecodesToTheSameBits(encoded, view);
      }
      Measure(std::move(result), encoded, Decoder(encoded), comparison, activations);
    }
    if (copy_) MeasureCopy(weight, index, view, comparison, activations);
  }

  void MeasureCopy(const Weight& weight, int64_t index, const MatrixView& view,
                   MatrixComparison& comparison, const FidelityActivations* activations) {
    const CopyMatrix copy = FindCopy(*copy_, border_ ? &*border_ : nullptr, weight, index);
    if (const auto reason = copy.WhyNot(weight)) {
      if (index == 0) report_.skipped.push_back({weight.name(), "against", *reason, 0});
      return;
    }
    FidelityResult result = Describe(weight, index, copy.weight->format());
    result.against = true;
    NoteWidth(result, activations);
    for (const std::string& note : copy.weight->notes()) result.notes.push_back(note);
    const EncodedMatrix encoded = copy.weight->Encoded(copy.index);
    RowReader decoded = Decoder(encoded);
    if (copy.pair != nullptr) {
      if (crossed_.insert(copy.pair).second) report_.border->Add(*copy.pair);
      result.conversions = copy.pair->Sentences();
      result.fits_only = FitsOnly(*border_, *copy.pair, view, decoded);
      decoded = InOrderOfSource(*border_, *copy.pair, weight, std::move(decoded));
    }
    Measure(std::move(result), encoded, decoded, comparison, activations);
  }

  void NoteWidth(FidelityResult& result, const FidelityActivations* activations) const {
    if (activations == nullptr && activations_) {
      result.notes.push_back(
          fmt::format("no product: the activations are not {} wide", result.source_shape[1]));
    }
  }

  void AddTotals() {
    std::vector<std::string> names;
    for (const FormatPtr& format : formats_) names.push_back(format->Name());
    if (copy_) names.emplace_back("against");
    for (const std::string& name : names) {
      const bool against = copy_ && name == "against";
      report_.totals.push_back(TotalOf(report_.results, name, against));
      if (against && report_.totals.back().num_matrices == 0) ThrowNoCopyFits();
    }
  }

  [[noreturn]] void ThrowNoCopyFits() const {
    for (const FidelitySkipped& skip : report_.skipped) {
      if (skip.format != "against") continue;
      ThrowInput("{}: no weight of {} is in it; {}: {}", options_.against, options_.model,
                 Quoted(skip.tensor), skip.reason);
    }
    ThrowInput("{}: no weight of {} is in it", options_.against, options_.model);
  }

  const FidelityOptions& options_;
  Model model_;
  std::optional<Model> copy_;
  std::optional<Border> border_;
  std::set<const BorderPair*> crossed_;
  std::vector<FormatPtr> formats_;
  std::unique_ptr<ActivationSource> activations_;
  std::vector<const Weight*> weights_;
  std::map<int64_t, std::vector<int64_t>> rows_;
  bool any_width_fits_ = false;
  FidelityReport report_;
};

}  // namespace

FidelityReport RunFidelity(const FidelityOptions& options) { return FidelityStudy(options).Run(); }

}  // namespace assay
