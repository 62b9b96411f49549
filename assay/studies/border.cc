#include "assay/studies/border.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>

#include "assay/base/text.h"
#include "assay/checkpoint/gguf.h"
#include "assay/checkpoint/model.h"

namespace assay {
namespace {

constexpr size_t kMaxArchitectureBytes = 64;

bool IsGguf(const Model& model) {
  return !model.Files().empty() && model.Files().front()->kind() == "gguf";
}

/// Tensors as they are meant: encoded weights under their own names.
std::map<std::string, Shape> ShapesOf(const Model& model) {
  std::map<std::string, Shape> shapes;
  std::set<std::string, std::less<>> folded;
  for (const Weight& weight : model.Weights()) {
    folded.insert(weight.tensor_names().begin(), weight.tensor_names().end());
    shapes.emplace(weight.name(), weight.PlainShape());
  }
  for (const StoredTensor& tensor : model.Tensors()) {
    if (!folded.contains(tensor.name)) shapes.emplace(tensor.name, tensor.shape);
  }
  return shapes;
}

/// An entry of an array of whole numbers, or a single one that holds for every layer.
std::optional<int64_t> NumberFor(const GgufValue& value, int64_t layer) {
  if (!value.is_array()) return value.AsInteger();
  if (value.element() == GgufType::kString || layer < 0 ||
      static_cast<uint64_t>(layer) >= value.count()) {
    return std::nullopt;
  }
  const std::string text = value.NumberText(static_cast<uint64_t>(layer));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int64_t> ConfigNumber(const Model& model, const char* key) {
  const nlohmann::json* config = model.Config("config.json");
  if (config == nullptr) return std::nullopt;
  const auto text = config->find("text_config");
  for (const nlohmann::json* object : {config, text == config->end() ? nullptr : &*text}) {
    if (object == nullptr || !object->is_object()) continue;
    const auto found = object->find(key);
    if (found != object->end() && found->is_number_integer()) return found->get<int64_t>();
  }
  return std::nullopt;
}

/// How many heads the rows of query and key belong to.
class Heads {
 public:
  Heads(const Model& folder, const GgufMetadata& metadata, const std::string& architecture)
      : folder_(folder),
        query_(metadata.Find(architecture + ".attention.head_count")),
        key_(metadata.Find(architecture + ".attention.head_count_kv")) {}

  std::optional<int64_t> Query(int64_t layer) const {
    if (query_ != nullptr) return NumberFor(*query_, layer);
    return ConfigNumber(folder_, "num_attention_heads");
  }
  std::optional<int64_t> Key(int64_t layer) const {
    if (key_ != nullptr) return NumberFor(*key_, layer);
    const auto number = ConfigNumber(folder_, "num_key_value_heads");
    return number ? number : Query(layer);
  }

 private:
  const Model& folder_;
  const GgufValue* query_;
  const GgufValue* key_;
};

/// Finds the pairs.
class Pairing {
 public:
  Pairing(std::map<std::string, Shape> folder, std::map<std::string, Shape> file,
          GgufArchitecture architecture, const Heads& heads)
      : folder_(std::move(folder)),
        file_(std::move(file)),
        architecture_(architecture),
        heads_(heads) {
    for (const auto& [name, shape] : folder_) {
      if (auto naming = GgufNamingOf(name)) namings_.emplace(name, std::move(*naming));
    }
  }

  std::vector<BorderPair> Run() {
    PairExperts();
    PairJoined();
    // A name that fits one place only goes there before those that have a choice.
    for (const bool has_choice : {false, true}) {
      for (const auto& [name, naming] : namings_) {
        if (!naming.expert && (naming.names.size() > 1) == has_choice) PairOne(name, naming);
      }
    }
    PairTied();
    std::ranges::sort(pairs_, {}, &BorderPair::folder_name);
    return std::move(pairs_);
  }

  std::vector<std::string> notes;

 private:
  bool Free(const std::string& in_file) const {
    return file_.contains(in_file) && !taken_.contains(in_file);
  }

  BorderPart Part(const std::string& in_file, const GgufNaming& naming) {
    BorderPart part{in_file};
    if (!naming.rotary || !architecture_.permutes_heads) return part;
    const bool query = in_file.find(".attn_q.") != std::string::npos;
    const bool key = in_file.find(".attn_k.") != std::string::npos;
    if (!query && !key) return part;
    const auto heads = query ? heads_.Query(naming.layer) : heads_.Key(naming.layer);
    const Shape& shape = file_.at(in_file);
    const int64_t rows = shape.rank() > 0 ? shape[0] : 0;
    if (!heads) {
      notes.push_back(fmt::format(
          "{}: its rows are permuted in heads, but neither metadata nor config.json say in how "
          "many; compared as they are",
          Quoted(in_file)));
    } else if (!HeadsFit(rows, *heads)) {
      notes.push_back(
          fmt::format("{}: {} rows are no whole heads for {} heads; compared as they are",
                      Quoted(in_file), rows, *heads));
    } else {
      part.heads = *heads;
    }
    return part;
  }

  void Add(BorderPair pair, const GgufNaming& naming) {
    const auto permuted = [](const BorderPart& part) { return part.heads > 0; };
    if (std::ranges::any_of(pair.gguf, permuted)) {
      pair.conversions.push_back(BorderConversion::kPermutedHeads);
    }
    if (naming.norm && architecture_.adds_one_to_norms) {
      pair.norm_plus_one = true;
      pair.conversions.push_back(BorderConversion::kNormPlusOne);
    }
    for (const std::string& name : pair.folder) paired_.insert(name);
    for (const BorderPart& part : pair.gguf) taken_.insert(part.name);
    pairs_.push_back(std::move(pair));
  }

  void PairOne(const std::string& name, const GgufNaming& naming) {
    if (paired_.contains(name)) return;
    const auto found =
        std::ranges::find_if(naming.names, [&](const std::string& other) { return Free(other); });
    if (found == naming.names.end()) return;
    Add({{name}, {Part(*found, naming)}, name, *found, false, {}}, naming);
  }

  void PairExperts() {
    std::map<std::string, std::map<int64_t, std::string>> stacks;
    for (const auto& [name, naming] : namings_) {
      if (naming.expert) stacks[naming.stack].emplace(*naming.expert, name);
    }
    for (const auto& [stack, experts] : stacks) {
      const GgufNaming& naming = namings_.at(experts.begin()->second);
      const auto count = static_cast<int64_t>(experts.size());
      // Numbers are unique and not negative: the last one tells whether all are there.
      const bool whole = experts.rbegin()->first == count - 1;
      if (!naming.names.empty() && Free(naming.names.front())) {
        if (!whole) {
          notes.push_back(fmt::format(
              "{}: {} experts, but their numbers go up to {}; left without {}", Quoted(stack),
              count, experts.rbegin()->first, Quoted(naming.names.front())));
          continue;
        }
        BorderPair pair{{},    {{naming.names.front()}},           stack, naming.names.front(),
                        false, {BorderConversion::kStackedExperts}};
        for (const auto& [number, name] : experts) pair.folder.push_back(name);
        Add(std::move(pair), naming);
        continue;
      }
      for (const auto& [number, name] : experts) {
        const GgufNaming& own = namings_.at(name);
        if (Free(own.single_expert)) {
          Add({{name}, {{own.single_expert}}, name, own.single_expert, false, {}}, own);
        }
      }
    }
  }

  void PairJoined() {
    std::map<std::string, std::vector<std::string>> wholes;
    for (const auto& [name, naming] : namings_) {
      const std::vector<std::string>& parts = naming.parts;
      const auto free = [&](const std::string& other) { return Free(other); };
      // A name of its own in the file comes before its parts, unless it is the name of one.
      const bool has_own = std::ranges::any_of(naming.names, [&](const std::string& other) {
        return Free(other) && std::ranges::find(parts, other) == parts.end();
      });
      if (!has_own && !parts.empty() && std::ranges::all_of(parts, free)) {
        BorderPair pair{{name}, {}, name, {}, false, {BorderConversion::kJoinedRows}};
        for (const std::string& part : parts) {
          pair.gguf.push_back(Part(part, naming));
          pair.gguf_name += (pair.gguf_name.empty() ? "" : " + ") + part;
        }
        Add(std::move(pair), naming);
      }
      if (!naming.whole.empty() && Free(naming.whole) && !Free(naming.names.front())) {
        wholes[naming.whole].push_back(name);
      }
    }
    // Query, key and value. Where rows were permuted as well nothing says how: left alone.
    for (auto& [whole, names] : wholes) {
      if (names.size() != 3 || architecture_.permutes_heads) continue;
      const auto place = [](const std::string& name) {
        return name.find(".q_proj.") != std::string::npos   ? 0
               : name.find(".k_proj.") != std::string::npos ? 1
                                                            : 2;
      };
      std::ranges::sort(names, {}, place);
      const GgufNaming& naming = namings_.at(names.front());
      Add({names,
           {{whole}},
           fmt::format("{} + {} + {}", names[0], names[1], names[2]),
           whole,
           false,
           {BorderConversion::kJoinedRows}},
          naming);
    }
  }

  /// One side stores the output head, the other takes the token embedding for it.
  void PairTied() {
    const auto find = [&](std::string_view in_file) -> const BorderPair* {
      const auto found = std::ranges::find(pairs_, in_file, &BorderPair::gguf_name);
      return found == pairs_.end() ? nullptr : &*found;
    };
    constexpr std::string_view kHead = "output.weight";
    const BorderPair* const embedding = find("token_embd.weight");
    if (embedding == nullptr || find(kHead) != nullptr) return;
    BorderPair pair = *embedding;
    pair.conversions = {BorderConversion::kTiedEmbedding};
    if (file_.contains(std::string(kHead))) {
      pair.gguf = {{std::string(kHead)}};
      pair.gguf_name = kHead;
      pairs_.push_back(pair);
      return;
    }
    for (const auto& [name, naming] : namings_) {
      if (std::ranges::find(naming.names, kHead) == naming.names.end()) continue;
      pair.folder = {name};
      pair.folder_name = name;
      pairs_.push_back(pair);
      return;
    }
  }

  std::map<std::string, Shape> folder_;
  std::map<std::string, Shape> file_;
  GgufArchitecture architecture_;
  const Heads& heads_;
  std::map<std::string, GgufNaming> namings_;
  std::vector<BorderPair> pairs_;
  std::set<std::string> paired_;
  std::set<std::string> taken_;
};

std::string Sentence(BorderConversion conversion, const BorderPair& pair) {
  switch (conversion) {
    case BorderConversion::kPermutedHeads: {
      std::string heads;
      for (const BorderPart& part : pair.gguf) {
        if (part.heads == 0) continue;
        if (!heads.empty()) heads += " and ";
        heads += Grouped(part.heads);
      }
      return fmt::format("rows permuted back from {} heads", heads);
    }
    case BorderConversion::kNormPlusOne:
      return "1 added to the folder's values, as in the GGUF file";
    case BorderConversion::kStackedExperts:
      return fmt::format("{} experts stacked", Grouped(static_cast<int64_t>(pair.folder.size())));
    case BorderConversion::kJoinedRows:
      return fmt::format("rows of {} tensors joined",
                         std::max(pair.folder.size(), pair.gguf.size()));
    case BorderConversion::kTiedEmbedding:
      return "output head tied to the token embedding";
  }
  return {};
}

}  // namespace

std::string_view NameOf(BorderConversion conversion) noexcept {
  switch (conversion) {
    case BorderConversion::kPermutedHeads:
      return "permuted_heads";
    case BorderConversion::kNormPlusOne:
      return "norm_plus_one";
    case BorderConversion::kStackedExperts:
      return "stacked_experts";
    case BorderConversion::kJoinedRows:
      return "joined_rows";
    case BorderConversion::kTiedEmbedding:
      return "tied_embedding";
  }
  return {};
}

bool BorderPair::Has(BorderConversion conversion) const {
  return std::ranges::find(conversions, conversion) != conversions.end();
}

std::vector<std::string> BorderPair::Sentences() const {
  std::vector<std::string> sentences;
  for (const BorderConversion conversion : conversions) {
    sentences.push_back(Sentence(conversion, *this));
  }
  return sentences;
}

BorderTransformation BorderPair::Expected() const {
  BorderTransformation expected;
  if (gguf.size() == 1) expected.heads = gguf.front().heads;
  if (norm_plus_one) expected.shift = 1;
  return expected;
}

void BorderSummary::Add(const BorderPair& pair) {
  ++num_pairs;
  for (const BorderConversion conversion : pair.conversions) ++conversions[conversion];
}

std::optional<Border> Border::Between(const Model& a, const Model& b) {
  if (IsGguf(a) == IsGguf(b)) return std::nullopt;
  Border border;
  border.gguf_is_a_ = IsGguf(a);
  const Model& file = border.gguf_is_a_ ? a : b;
  const Model& folder = border.gguf_is_a_ ? b : a;
  auto in_file = ShapesOf(file);
  auto in_folder = ShapesOf(folder);
  const auto num_same = std::ranges::count_if(
      in_file, [&](const auto& tensor) { return in_folder.contains(tensor.first); });
  if (2 * num_same >= static_cast<std::ptrdiff_t>(in_file.size())) return std::nullopt;

  const auto opened = std::dynamic_pointer_cast<const GgufFile>(file.Files().front());
  const GgufMetadata& metadata = opened->header().metadata;
  // A name that is longer than any known one is as good as none.
  const std::string_view architecture = metadata.String("general.architecture").value_or("");
  if (architecture.size() <= kMaxArchitectureBytes) border.architecture_ = architecture;
  const Heads heads(folder, metadata, border.architecture_);
  Pairing pairing(std::move(in_folder), std::move(in_file),
                  GgufArchitectureOf(border.architecture_), heads);
  border.pairs_ = pairing.Run();
  border.notes_ = std::move(pairing.notes);
  if (border.pairs_.empty()) return std::nullopt;
  // Pairs of tied embeddings after the others: the first entry of a name stays.
  for (const bool tied : {false, true}) {
    for (size_t i = 0; i < border.pairs_.size(); ++i) {
      const BorderPair& pair = border.pairs_[i];
      if (pair.Has(BorderConversion::kTiedEmbedding) != tied) continue;
      const size_t count = border.gguf_is_a_ ? pair.gguf.size() : pair.folder.size();
      for (size_t k = 0; k < count; ++k) {
        border.places_.emplace(border.gguf_is_a_ ? pair.gguf[k].name : pair.folder[k],
                               std::pair(i, k));
      }
    }
  }
  return border;
}

Border::Place Border::Find(std::string_view name_in_a) const {
  const auto found = places_.find(name_in_a);
  if (found == places_.end()) return {};
  return {&pairs_[found->second.first], found->second.second};
}

std::string Border::Unexpected(const BorderPair& pair, const BorderTransformation& found) const {
  return fmt::format("fits only {}; expected for {}: {}", found.ToText(),
                     architecture_.empty() ? std::string("a file without an architecture")
                                           : fmt::format("architecture {}", Quoted(architecture_)),
                     pair.Expected().ToText());
}

}  // namespace assay
