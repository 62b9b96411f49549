// The JSON of a safetensors header, read event by event: nothing is built that the format does not
// name, so neither depth nor size of foreign content matters.

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/json_text.h"
#include "assay/checkpoint/safetensors_header.h"

namespace assay {
namespace {

constexpr std::string_view kMetadataName = "__metadata__";

// Where the next event stands.
enum class Place {
  kRoot,   // before the outer object
  kName,   // a tensor's name, or the end
  kEntry,  // the value of a name
  kField,  // a field's name, or the entry's end
  kDType,  // field values
  kShape,
  kOffsets,
  kDim,  // elements of the two arrays
  kOffset,
  kMetadata,       // the value of __metadata__
  kMetadataKey,    // a key in it, or its end
  kMetadataValue,  // the value of such a key
  kDone,
};

class HeaderEvents {
 public:
  HeaderEvents(std::string_view path, SafetensorsHeader& header) : path_(path), header_(header) {}

  bool null() {
    if (place_ != Place::kMetadata) Unexpected("null");
    place_ = Place::kName;  // some writers state absent metadata as null
    return true;
  }
  bool boolean(bool value) { Unexpected(value ? "true" : "false"); }
  bool number_integer(int64_t value) {
    // nlohmann calls this for numbers with a sign only, so 0 was written "-0".
    Unexpected(value == 0 ? "-0" : fmt::format("{}", value));
  }
  bool number_float(double /*value*/, const std::string& text) {
    Unexpected(fmt::format("{}{}", text.substr(0, kMaxNumberText),
                           text.size() > kMaxNumberText ? "…" : ""));
  }
  bool number_unsigned(uint64_t value) {
    if (place_ != Place::kDim && place_ != Place::kOffset) Unexpected(fmt::format("{}", value));
    if (value > kMaxNumber) Unexpected(fmt::format("{}, out of range", value));
    if (place_ == Place::kDim) {
      if (dims_.size() == Shape::kMaxRank) {
        Fail("shape: the rank is above {} dimensions", Shape::kMaxRank);
      }
      dims_.push_back(static_cast<int64_t>(value));
    } else {
      if (num_offsets_ == 2) Fail("data_offsets: expected 2 offsets, found more");
      offsets_[num_offsets_++] = static_cast<int64_t>(value);
    }
    return true;
  }
  bool string(std::string& value) {
    if (place_ == Place::kMetadataValue) {
      header_.metadata.emplace(name_, std::move(value));
      place_ = Place::kMetadataKey;
      return true;
    }
    if (place_ != Place::kDType) Unexpected(fmt::format("the string {}", Quoted(value)));
    const auto dtype = ParseDType(value);
    if (!dtype) {
      Fail("dtype {} is not one of the format's (such as F32, BF16, F8_E4M3, U8)", Quoted(value));
    }
    entry_.dtype = *dtype;
    place_ = Place::kField;
    return true;
  }
  bool binary(nlohmann::json::binary_t& /*value*/) { Unexpected("binary data"); }

  bool start_object(size_t /*size*/) {
    if (place_ == Place::kRoot) {
      place_ = Place::kName;
    } else if (place_ == Place::kEntry) {
      place_ = Place::kField;
      has_dtype_ = has_shape_ = has_offsets_ = false;
    } else if (place_ == Place::kMetadata) {
      place_ = Place::kMetadataKey;
    } else {
      Unexpected("an object");
    }
    return true;
  }
  bool key(std::string& name) {
    if (place_ == Place::kName) {
      if (name == kMetadataName) {
        if (has_metadata_) ThrowInput("{}: header: duplicate {}", path_, kMetadataName);
        has_metadata_ = true;
        place_ = Place::kMetadata;
      } else {
        entry_ = {};
        entry_.name = std::move(name);
        place_ = Place::kEntry;
      }
    } else if (place_ == Place::kMetadataKey) {
      if (header_.metadata.contains(name)) {
        ThrowInput("{}: header: {}: duplicate key {}", path_, kMetadataName, Quoted(name));
      }
      name_ = std::move(name);
      place_ = Place::kMetadataValue;
    } else {
      Field(name);
    }
    return true;
  }
  bool end_object() {
    if (place_ == Place::kField) {
      EndEntry();
    } else if (place_ == Place::kMetadataKey) {
      place_ = Place::kName;
    } else {
      place_ = Place::kDone;
    }
    return true;
  }
  bool start_array(size_t /*size*/) {
    if (place_ == Place::kShape) {
      dims_.clear();
      place_ = Place::kDim;
    } else if (place_ == Place::kOffsets) {
      num_offsets_ = 0;
      place_ = Place::kOffset;
    } else {
      Unexpected("an array");
    }
    return true;
  }
  bool end_array() {
    if (place_ == Place::kDim) {
      entry_.shape = Shape(dims_);
    } else {
      if (num_offsets_ != 2) Fail("data_offsets: expected 2 offsets, found {}", num_offsets_);
      entry_.begin = offsets_[0];
      entry_.end = offsets_[1];
    }
    place_ = Place::kField;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) {
    if (place_ == Place::kDone) {
      ThrowInput("{}: header: trailing text after the JSON object, at header byte {}", path_,
                 Grouped(uint64_t{position == 0 ? 0 : position - 1}));
    }
    ThrowInput("{}: header: {}", path_, JsonFault(position, error.what()));
  }

 private:
  static constexpr uint64_t kMaxNumber = std::numeric_limits<int64_t>::max();
  static constexpr size_t kMaxNumberText = 40;

  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    ThrowInput("{}: tensor {}: {}", path_, Quoted(entry_.name),
               fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void Unexpected(std::string_view found) const {
    switch (place_) {
      case Place::kRoot:
      case Place::kName:
      case Place::kField:
      case Place::kMetadataKey:
      case Place::kDone:
        break;
      case Place::kEntry:
        Fail("entry: expected an object of dtype, shape and data_offsets, found {}", found);
      case Place::kDType:
        Fail("dtype: expected a string, found {}", found);
      case Place::kShape:
        Fail("shape: expected an array of integers, found {}", found);
      case Place::kOffsets:
        Fail("data_offsets: expected an array of 2 integers, found {}", found);
      case Place::kDim:
        Fail("shape[{}]: expected an integer from 0 to 2^63 - 1, found {}", dims_.size(), found);
      case Place::kOffset:
        Fail("data_offsets[{}]: expected an integer from 0 to 2^63 - 1, found {}", num_offsets_,
             found);
      case Place::kMetadata:
        ThrowInput("{}: header: {}: expected an object, found {}", path_, kMetadataName, found);
      case Place::kMetadataValue:
        ThrowInput("{}: header: {}: {}: expected a string, found {}", path_, kMetadataName,
                   Quoted(name_), found);
    }
    ThrowInput("{}: header: expected an object, found {}", path_, found);
  }

  void Field(const std::string& name) {
    bool* seen = nullptr;
    if (name == "dtype") {
      seen = &has_dtype_;
      place_ = Place::kDType;
    } else if (name == "shape") {
      seen = &has_shape_;
      place_ = Place::kShape;
    } else if (name == "data_offsets") {
      seen = &has_offsets_;
      place_ = Place::kOffsets;
    } else {
      Fail("unknown field {}; expected dtype, shape and data_offsets", Quoted(name));
    }
    if (*seen) Fail("duplicate field {}", Quoted(name));
    *seen = true;
  }

  void EndEntry() {
    if (!has_dtype_) Fail("field \"dtype\" is missing");
    if (!has_shape_) Fail("field \"shape\" is missing");
    if (!has_offsets_) Fail("field \"data_offsets\" is missing");
    header_.entries.push_back(std::move(entry_));
    place_ = Place::kName;
  }

  std::string_view path_;
  SafetensorsHeader& header_;
  Place place_ = Place::kRoot;
  SafetensorsEntry entry_;
  std::string name_;  // of the metadata key
  std::vector<int64_t> dims_;
  int64_t offsets_[2] = {};
  size_t num_offsets_ = 0;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

}  // namespace

SafetensorsHeader ParseSafetensorsJson(std::string_view text, std::string_view path) {
  SafetensorsHeader header;
  HeaderEvents events(path, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  // By sorting rather than hashing: a hostile file can choose names that collide.
  std::sort(header.entries.begin(), header.entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(header.entries.begin(), header.entries.end(),
                         [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twin != header.entries.end()) {
    ThrowInput("{}: duplicate tensor name {}", path, Quoted(twin->name));
  }
  return header;
}

}  // namespace assay
