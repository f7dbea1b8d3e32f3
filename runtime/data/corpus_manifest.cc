#include "runtime/data/corpus_manifest.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/crc32c.h"
#include "runtime/json_fields.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keeps the order of fields, for readers

constexpr StrictJsonLimits kLimits = {.max_bytes = int64_t{64} << 20, .max_depth = 4};
constexpr int32_t kWidestFrame = 1 << 16;
constexpr int64_t kMostSamples = std::numeric_limits<uint32_t>::max();

// One line without the checksum field: the text that the checksum covers. Cannot fail on invalid UTF-8 in a name.
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

VocabularyReference ReadVocabulary(JsonFields fields) {
  VocabularyReference vocabulary;
  fields.ReadFileName("file", vocabulary.file);
  fields.Read("size", vocabulary.size, kSpecialTokens);
  fields.Read("crc32c", vocabulary.crc32c);
  return vocabulary;
}

CorpusStatistics ReadStatistics(JsonFields fields) {
  CorpusStatistics statistics;
  fields.Read("source_tokens", statistics.source_tokens, 0);
  fields.Read("target_tokens", statistics.target_tokens, 0);
  fields.Read("source_unknown", statistics.source_unknown, 0);
  fields.Read("target_unknown", statistics.target_unknown, 0);
  fields.Read("longest_source", statistics.longest_source, 0);
  fields.Read("longest_target", statistics.longest_target, 0);
  return statistics;
}

std::vector<ShardReference> ReadShards(const Json& list, absl::Status& status) {
  std::vector<ShardReference> shards;
  for (const Json& item : list) {
    JsonFields fields(item, absl::StrCat("shards[", shards.size(), "]"), status);
    ShardReference& shard = shards.emplace_back();
    fields.ReadFileName("file", shard.file);
    fields.Read("bytes", shard.bytes, 0);
    fields.Read("samples", shard.samples, 0, kMostSamples);
    fields.Read("crc32c", shard.crc32c);
    if (!status.ok()) break;
  }
  return shards;
}

std::vector<std::string> ReadCorpora(JsonFields& fields) {
  std::vector<std::string> corpora;
  for (const Json& item : fields.List("corpora")) {
    if (!item.is_string()) {
      fields.Fail("corpora", "has an entry that is not text");
      break;
    }
    corpora.push_back(item.get<std::string>());
  }
  return corpora;
}

// Fields that have their defaults are left out.
void AddForm(const TextForm& form, OrderedJson& json) {
  const TextForm usual;
  if (form.start_token != usual.start_token) json["start_token"] = form.start_token;
  if (form.end_token != usual.end_token) json["end_token"] = form.end_token;
  if (form.reserved_ids != usual.reserved_ids) json["reserved_ids"] = form.reserved_ids;
  if (form.block != usual.block) json["block"] = form.block;
  if (form.document_mask != usual.document_mask) json["document_mask"] = form.document_mask;
}

TextForm ReadForm(JsonFields& fields, int32_t vocabulary_size) {
  TextForm form;
  if (fields.Has("start_token")) fields.Read("start_token", form.start_token, 0, vocabulary_size - 1);
  if (fields.Has("end_token")) fields.Read("end_token", form.end_token, 0, vocabulary_size - 1);
  if (fields.Has("reserved_ids")) fields.Read("reserved_ids", form.reserved_ids);
  if (fields.Has("block")) fields.Read("block", form.block, 1);
  if (fields.Has("document_mask")) fields.Read("document_mask", form.document_mask);
  return form;
}

// Reads an object whose checksum is right; error messages lack the manifest's name.
absl::StatusOr<CorpusManifest> ReadManifest(const Json& json) {
  absl::Status status;
  JsonFields fields(json, "", status);
  CorpusManifest manifest;
  fields.Read("samples", manifest.samples, 0, kMostSamples);
  if (fields.Has("source_vocabulary")) manifest.source_vocabulary = ReadVocabulary(fields.Object("source_vocabulary"));
  manifest.target_vocabulary = ReadVocabulary(fields.Object("target_vocabulary"));
  manifest.shards = ReadShards(fields.List("shards"), status);
  manifest.corpora = ReadCorpora(fields);
  manifest.statistics = ReadStatistics(fields.Object("statistics"));
  if (fields.Has("mask_token")) {
    fields.Read("mask_token", manifest.mask_token, 0, int64_t{manifest.target_vocabulary.size} - 1);
  }
  for (const Json& item : fields.Has("special_tokens") ? fields.List("special_tokens") : Json::array()) {
    manifest.special_tokens.push_back(JsonInteger<int32_t>(item).value_or(-1));
    const size_t count = manifest.special_tokens.size();
    const int32_t before = count > 1 ? manifest.special_tokens[count - 2] : -1, id = manifest.special_tokens.back();
    if (id <= before || id >= manifest.target_vocabulary.size) fields.Fail("special_tokens", "is no ascending ids");
  }
  bool target_tags = false;  // all that older corpora have
  if (fields.Has("target_tags")) fields.Read("target_tags", target_tags);
  if (target_tags) manifest.tags = "m2m100";
  if (fields.Has("tags")) fields.Read("tags", manifest.tags);
  if (fields.Has("frame_width")) fields.Read("frame_width", manifest.frame_width, 1, kWidestFrame);
  if (fields.Has("sample_rate")) fields.Read("sample_rate", manifest.sample_rate, 1);
  if (fields.Has("cmvn")) fields.Read("cmvn", manifest.cmvn);
  manifest.form = ReadForm(fields, manifest.target_vocabulary.size);
  HADAL_RETURN_IF_ERROR(status);
  if (manifest.form != TextForm() && !manifest.monolingual()) {
    return DataLossError("it has blocks or a tokenizer's ids, and a source");
  }
  if (manifest.frame_width > 0 && manifest.source_vocabulary.size > 0) {
    return DataLossError("it has both frame_width and source_vocabulary: a source is either speech or text");
  }
  int64_t samples = 0;
  for (const ShardReference& shard : manifest.shards) samples += shard.samples;
  if (samples != manifest.samples) {
    return DataLossError("the shards have ", samples, " samples, the field samples says ", manifest.samples);
  }
  return manifest;
}

}  // namespace

DataIdentity IdentityOf(const CorpusManifest& manifest) {
  DataIdentity identity = {.samples = manifest.samples};
  const auto add = [&](const void* data, size_t bytes) { identity.crc32c = Crc32c(data, bytes, identity.crc32c); };
  for (const ShardReference& shard : manifest.shards) add(&shard.crc32c, sizeof(shard.crc32c));
  if (manifest.form != TextForm()) {
    OrderedJson form = OrderedJson::object();
    AddForm(manifest.form, form);
    const std::string text = form.dump();
    add(text.data(), text.size());
  }
  if (manifest.corpora.size() > 1) {
    for (const std::string& name : manifest.corpora) add(name.c_str(), name.size() + 1);
  }
  return identity;
}

std::string Describe(const DataIdentity& identity) {
  return absl::StrCat(identity.samples, " samples, checksum ", absl::Hex(identity.crc32c, absl::kZeroPad8));
}

std::string ManifestToJson(const CorpusManifest& manifest) {
  OrderedJson shards = OrderedJson::array();
  for (const ShardReference& shard : manifest.shards) shards.push_back(ToJson(shard));
  OrderedJson json = {
      {"format", CorpusManifest::kFormat}, {"version", CorpusManifest::kFormatVersion}, {"samples", manifest.samples}};
  if (manifest.source_vocabulary.size > 0) json["source_vocabulary"] = ToJson(manifest.source_vocabulary);
  json["target_vocabulary"] = ToJson(manifest.target_vocabulary);
  json["shards"] = shards;
  json["corpora"] = manifest.corpora;
  json["statistics"] = ToJson(manifest.statistics);
  if (manifest.mask_token >= 0) json["mask_token"] = manifest.mask_token;
  if (!manifest.special_tokens.empty()) json["special_tokens"] = manifest.special_tokens;
  if (manifest.target_tags()) json["target_tags"] = true;
  if (!manifest.tags.empty()) json["tags"] = manifest.tags;
  if (manifest.frame_width > 0) json["frame_width"] = manifest.frame_width;
  if (manifest.sample_rate > 0) json["sample_rate"] = manifest.sample_rate;
  if (!manifest.cmvn.empty()) json["cmvn"] = manifest.cmvn;
  AddForm(manifest.form, json);
  json["crc32c"] = ChecksumOf(Json(json));
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<CorpusManifest> ManifestFromJson(const std::string& json, const std::string& name) {
  const auto damaged = [&name](absl::string_view what) {
    return DataLossError(name, ": ", what, "; restore the file from a copy, or run hadal prepare again");
  };
  const absl::StatusOr<Json> parsed_or = ParseStrictJson(json, kLimits, "its text");
  if (!parsed_or.ok()) return damaged(parsed_or.status().message());
  const Json& parsed = *parsed_or;
  if (!parsed.is_object() || !parsed.contains("format") || parsed["format"] != CorpusManifest::kFormat) {
    return damaged("it is not the manifest of a corpus");
  }
  absl::Status status;
  JsonFields fields(parsed, "", status);
  int32_t version = 0;
  uint32_t crc32c = 0;
  fields.Read("version", version, 0);
  fields.Read("crc32c", crc32c);
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
