#include "runtime/data/corpus_manifest.h"

#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/crc32c.h"
#include "runtime/data/packed_batch.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "runtime/strict_json.h"

namespace hadal {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // written for people: fields in the order they are told

constexpr std::string_view kFormat = "hadal corpus";
constexpr StrictJsonLimits kLimits = {.max_bytes = int64_t{64} << 20, .max_depth = 4};
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

// One line without the checksum: what the checksum is of. Invalid UTF-8 in a name cannot make it fail.
std::string Canonical(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

uint32_t ChecksumOf(Json json) {
  json.erase("crc32c");
  const std::string text = Canonical(json);
  return Crc32c(text.data(), text.size());
}

OrderedJson ToJson(const VocabularyReference& vocabulary) {
  return {{"file", vocabulary.file}, {"size", vocabulary.size}, {"crc32c", vocabulary.crc32c}};
}

OrderedJson ToJson(const ShardReference& shard) {
  return {{"file", shard.file}, {"bytes", shard.bytes}, {"samples", shard.samples}, {"crc32c", shard.crc32c}};
}

OrderedJson ToJson(const CorpusStatistics& statistics) {
  return {{"source_tokens", statistics.source_tokens},   {"target_tokens", statistics.target_tokens},
          {"source_unknown", statistics.source_unknown}, {"target_unknown", statistics.target_unknown},
          {"longest_source", statistics.longest_source}, {"longest_target", statistics.longest_target}};
}

// Reads fields of one object. The first field that is missing or wrong is remembered, later reads give zeros.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string place, absl::Status& status)
      : object_(object), place_(std::move(place)), status_(status) {}

  int64_t Integer(const std::string& name, int64_t min, int64_t max) {
    const Json* field = Find(name);
    if (field == nullptr) return 0;
    // Beyond int64 the parser makes an unsigned or floating-point number of it.
    const bool integer = field->is_number_integer() &&
                         !(field->is_number_unsigned() && field->get<uint64_t>() > static_cast<uint64_t>(kMaxInt64));
    const int64_t value = integer ? field->get<int64_t>() : 0;
    if (!integer || value < min || value > max) {
      Fail(name, absl::StrCat("is ", Canonical(*field), ", a whole number from ", min, " to ", max, " is wanted"));
      return 0;
    }
    return value;
  }

  std::string Text(const std::string& name) {
    const Json* field = Find(name);
    if (field == nullptr) return "";
    if (!field->is_string()) {
      Fail(name, "is not text");
      return "";
    }
    return field->get<std::string>();
  }

  // A file beside the manifest: a name that leads elsewhere is refused.
  std::string FileName(const std::string& name) {
    std::string file = Text(name);
    if (status_.ok() && !IsPlainFileName(file))
      Fail(name, absl::StrCat("is '", file, "', a plain file name is wanted"));
    return file;
  }

  // The field where it has the wanted type, an empty one otherwise.
  const Json& Typed(const std::string& name, Json::value_t type) {
    static const Json* const kNothing = new Json();
    const Json* field = Find(name);
    if (field == nullptr) return *kNothing;
    if (field->type() == type) return *field;
    Fail(name, absl::StrCat("has the wrong type (", field->type_name(), ")"));
    return *kNothing;
  }
  FieldReader Object(const std::string& name) {
    return FieldReader(Typed(name, Json::value_t::object), absl::StrCat(place_, name, "."), status_);
  }

 private:
  const Json* Find(const std::string& name) {
    if (!status_.ok()) return nullptr;
    const auto field = object_.find(name);
    if (field != object_.end()) return &*field;
    Fail(name, "is missing");
    return nullptr;
  }
  void Fail(const std::string& name, absl::string_view what) {
    if (status_.ok()) status_ = absl::DataLossError(absl::StrCat("the field ", place_, name, " ", what));
  }

  const Json& object_;
  std::string place_;
  absl::Status& status_;
};

VocabularyReference ReadVocabulary(FieldReader reader) {
  return {.file = reader.FileName("file"),
          .size = static_cast<int32_t>(reader.Integer("size", kSpecialTokens, kMaxInt32)),
          .crc32c = static_cast<uint32_t>(reader.Integer("crc32c", 0, kMaxUint32))};
}

CorpusStatistics ReadStatistics(FieldReader reader) {
  const auto count = [&reader](const std::string& name) { return reader.Integer(name, 0, kMaxInt64); };
  return {.source_tokens = count("source_tokens"),
          .target_tokens = count("target_tokens"),
          .source_unknown = count("source_unknown"),
          .target_unknown = count("target_unknown"),
          .longest_source = count("longest_source"),
          .longest_target = count("longest_target")};
}

std::vector<ShardReference> ReadShards(const Json& list, absl::Status& status) {
  std::vector<ShardReference> shards;
  for (const Json& item : list) {
    const std::string place = absl::StrCat("shards[", shards.size(), "].");
    if (!item.is_object()) status.Update(absl::DataLossError(absl::StrCat("the field ", place, " is not an object")));
    if (!status.ok()) break;
    FieldReader reader(item, place, status);
    shards.push_back({.file = reader.FileName("file"),
                      .bytes = reader.Integer("bytes", 0, kMaxInt64),
                      .samples = reader.Integer("samples", 0, kMaxUint32),
                      .crc32c = static_cast<uint32_t>(reader.Integer("crc32c", 0, kMaxUint32))});
  }
  return shards;
}

std::vector<std::string> ReadCorpora(const Json& list, absl::Status& status) {
  std::vector<std::string> corpora;
  for (const Json& item : list) {
    if (!item.is_string()) status.Update(absl::DataLossError("the field corpora has an entry that is not text"));
    if (!status.ok()) break;
    corpora.push_back(item.get<std::string>());
  }
  return corpora;
}

// The content of an object whose checksum has been found right; the message of an error lacks the manifest's name.
absl::StatusOr<CorpusManifest> ReadManifest(const Json& json) {
  absl::Status status;
  FieldReader reader(json, "", status);
  CorpusManifest manifest;
  manifest.samples = reader.Integer("samples", 0, kMaxUint32);
  // A monolingual corpus has none.
  if (json.contains("source_vocabulary"))
    manifest.source_vocabulary = ReadVocabulary(reader.Object("source_vocabulary"));
  manifest.target_vocabulary = ReadVocabulary(reader.Object("target_vocabulary"));
  manifest.shards = ReadShards(reader.Typed("shards", Json::value_t::array), status);
  manifest.corpora = ReadCorpora(reader.Typed("corpora", Json::value_t::array), status);
  manifest.statistics = ReadStatistics(reader.Object("statistics"));
  HADAL_RETURN_IF_ERROR(status);
  int64_t samples = 0;
  for (const ShardReference& shard : manifest.shards) samples += shard.samples;
  if (samples != manifest.samples) {
    return absl::DataLossError(
        absl::StrCat("the shards have ", samples, " samples, the field samples says ", manifest.samples));
  }
  return manifest;
}

}  // namespace

std::string ManifestToJson(const CorpusManifest& manifest) {
  OrderedJson shards = OrderedJson::array();
  for (const ShardReference& shard : manifest.shards) shards.push_back(ToJson(shard));
  OrderedJson json = {{"format", kFormat}, {"version", CorpusManifest::kFormatVersion}, {"samples", manifest.samples}};
  if (!manifest.monolingual()) json["source_vocabulary"] = ToJson(manifest.source_vocabulary);
  json["target_vocabulary"] = ToJson(manifest.target_vocabulary);
  json["shards"] = shards;
  json["corpora"] = manifest.corpora;
  json["statistics"] = ToJson(manifest.statistics);
  json["crc32c"] = ChecksumOf(Json(json));
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<CorpusManifest> ManifestFromJson(const std::string& json, const std::string& name) {
  const auto damaged = [&name](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat(name, ": ", what, "; restore the file from a copy, or run hadal prepare again"));
  };
  const absl::StatusOr<Json> parsed_or = ParseStrictJson(json, kLimits, "its text");
  if (!parsed_or.ok()) return damaged(parsed_or.status().message());
  const Json& parsed = *parsed_or;
  if (!parsed.is_object() || !parsed.contains("format") || parsed["format"] != kFormat) {
    return damaged("it is not the manifest of a corpus");
  }
  absl::Status status;
  FieldReader reader(parsed, "", status);
  const int64_t version = reader.Integer("version", 0, kMaxInt32);
  const int64_t crc32c = reader.Integer("crc32c", 0, kMaxUint32);
  if (!status.ok()) return damaged(status.message());
  if (version != CorpusManifest::kFormatVersion) {
    return damaged(
        absl::StrCat("it has format version ", version, ", this hadal reads ", CorpusManifest::kFormatVersion));
  }
  if (crc32c != ChecksumOf(parsed)) return damaged("its content does not match its checksum: it was edited or damaged");
  absl::StatusOr<CorpusManifest> manifest = ReadManifest(parsed);
  if (!manifest.ok()) return damaged(manifest.status().message());
  return manifest;
}

}  // namespace hadal
