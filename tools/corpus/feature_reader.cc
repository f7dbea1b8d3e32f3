#include "tools/corpus/feature_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/files.h"
#include "runtime/json_fields.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxFeatureManifestBytes = int64_t{64} << 20;
constexpr StrictJsonLimits kLimits = {.max_bytes = kMaxFeatureManifestBytes, .max_depth = 4};
constexpr int32_t kWidestFrame = 1 << 16;
constexpr char kFormat[] = "hadal features";
constexpr int32_t kVersion = 1;

struct FeatureHeader {
  char magic[8] = {};
  uint32_t version = 0;
  uint32_t frame_width = 0;
  uint32_t sample_rate = 0;
  uint32_t utterances = 0;
  int64_t frames = 0;
};
static_assert(sizeof(FeatureHeader) == 32);
constexpr char kMagic[] = "hadalfea";

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return DataLossError(path, ": ", what, "; make the features again with speech_features.py");
}

absl::StatusOr<FeatureManifest> ParseManifest(const std::string& json) {
  HADAL_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseStrictJson(json, kLimits, "its text"));
  if (!parsed.is_object() || !parsed.contains("format") || parsed["format"] != kFormat) {
    return DataLossError("it is not the manifest of features");
  }
  FeatureManifest manifest;
  absl::Status status;
  JsonFields fields(parsed, "", status);
  int32_t version = 0;
  fields.Read("version", version, kVersion, kVersion);
  fields.Read("frame_width", manifest.frame_width, 1, kWidestFrame);
  fields.Read("sample_rate", manifest.sample_rate, 1);
  fields.Read("cmvn", manifest.cmvn);
  fields.Read("utterances", manifest.utterances, 0);
  fields.Read("frames", manifest.frames, 0);
  if (parsed.contains("transcripts")) {
    JsonFields texts(parsed["transcripts"], "transcripts", status);
    texts.Read("bytes", manifest.text_bytes, 0);
    texts.Read("crc32", manifest.text_crc32);
  }
  int64_t utterances = 0, frames = 0;
  for (const nlohmann::json& item : fields.List("shards")) {
    JsonFields of_shard(item, absl::StrCat("shards[", manifest.shards.size(), "]"), status);
    FeatureShard& shard = manifest.shards.emplace_back();
    of_shard.ReadFileName("file", shard.file);
    of_shard.Read("bytes", shard.bytes, 0);
    of_shard.Read("utterances", shard.utterances, 0, std::numeric_limits<uint32_t>::max());
    of_shard.Read("frames", shard.frames, 0, int64_t{1} << 40);
    of_shard.Read("crc32", shard.crc32);
    HADAL_RETURN_IF_ERROR(status);
    utterances += shard.utterances;
    frames += shard.frames;
  }
  HADAL_RETURN_IF_ERROR(status);
  if (utterances == manifest.utterances && frames == manifest.frames) return manifest;
  return DataLossError("its shards have ", utterances, " utterances and ", frames, " frames, its own fields say ",
                       manifest.utterances, " and ", manifest.frames);
}

uint32_t ChecksumOf(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

absl::StatusOr<FeatureReader> FeatureReader::Open(const std::string& prefix) {
  const std::string path = prefix + ".json";
  const absl::StatusOr<std::string> json = ReadFile(path, kMaxFeatureManifestBytes);
  if (absl::IsNotFound(json.status())) {
    return NotFoundError(path, " is missing; --features takes the prefix that speech_features.py wrote with --out");
  }
  HADAL_RETURN_IF_ERROR(json.status());
  absl::StatusOr<FeatureManifest> manifest = ParseManifest(*json);
  if (!manifest.ok()) return Damaged(path, manifest.status().message());
  FeatureReader reader;
  reader.prefix_ = prefix;
  reader.directory_ = DirectoryName(path);
  reader.manifest_ = *std::move(manifest);
  return reader;
}

std::vector<std::string> FeatureReader::Files() const {
  std::vector<std::string> files = {prefix_ + ".json", prefix_ + ".txt"};
  for (const FeatureShard& shard : manifest_.shards) files.push_back(JoinPath(directory_, shard.file));
  return files;
}

absl::Status FeatureReader::CheckHeader(const FeatureShard& shard, std::span<const std::byte> bytes) const {
  if (static_cast<int64_t>(bytes.size()) != shard.bytes || bytes.size() < sizeof(FeatureHeader)) {
    return DataLossError("it has ", bytes.size(), " bytes, its manifest says ", shard.bytes);
  }
  FeatureHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0 || header.version != kVersion) {
    return DataLossError("it does not begin with the header of features, version 1");
  }
  if (header.frame_width != static_cast<uint32_t>(manifest_.frame_width) ||
      header.sample_rate != static_cast<uint32_t>(manifest_.sample_rate) || header.utterances != shard.utterances ||
      header.frames != shard.frames) {
    return DataLossError("its header has ", header.utterances, " utterances and ", header.frames, " frames of ",
                         header.frame_width, " values at ", header.sample_rate, " Hz, its manifest says ",
                         shard.utterances, ", ", shard.frames, ", ", manifest_.frame_width, " and ",
                         manifest_.sample_rate);
  }
  if (ChecksumOf(bytes.subspan(sizeof(header))) == shard.crc32) return absl::OkStatus();
  return DataLossError("its content does not match its checksum");
}

absl::Status FeatureReader::OpenShard() {
  const FeatureShard& shard = manifest_.shards[next_shard_++];
  path_ = JoinPath(directory_, shard.file);
  absl::StatusOr<MappedFile> file = MappedFile::Open(path_);
  if (!file.ok()) return Damaged(path_, file.status().message());
  file_ = *std::move(file);
  if (const absl::Status status = CheckHeader(shard, file_.bytes()); !status.ok()) {
    return Damaged(path_, status.message());
  }
  rest_ = file_.bytes().subspan(sizeof(FeatureHeader));
  left_ = shard.utterances;
  return absl::OkStatus();
}

absl::StatusOr<std::span<const float>> FeatureReader::Next() {
  while (left_ == 0) {
    if (!rest_.empty()) return Damaged(path_, "it has bytes behind its last utterance");
    if (next_shard_ == manifest_.shards.size()) return OutOfRangeError("no utterance is left");
    HADAL_RETURN_IF_ERROR(OpenShard());
  }
  uint32_t frames = 0;
  if (rest_.size() >= sizeof(frames)) std::memcpy(&frames, rest_.data(), sizeof(frames));
  const size_t count = size_t{frames} * static_cast<size_t>(manifest_.frame_width);
  const int64_t utterance = manifest_.shards[next_shard_ - 1].utterances - left_;
  if (frames == 0 || count > (rest_.size() - sizeof(frames)) / sizeof(float)) {
    return Damaged(path_, absl::StrCat("utterance ", utterance, " has ", frames, " frames, the shard has ",
                                       rest_.size(), " bytes left"));
  }
  const std::span<const float> values(reinterpret_cast<const float*>(rest_.data() + sizeof(frames)), count);
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    return Damaged(path_, absl::StrCat("utterance ", utterance, " has a value that is not finite"));
  }
  rest_ = rest_.subspan(sizeof(frames) + count * sizeof(float));
  --left_;
  ++read_;
  return values;
}

absl::StatusOr<std::span<const float>> FeatureReader::Frames(int64_t number) {
  while (read_ + 1 < number) HADAL_RETURN_IF_ERROR(Next().status());
  return Next();
}

absl::Status FeatureReader::CheckTranscripts() const {
  if (manifest_.text_bytes < 0) return absl::OkStatus();
  const std::string path = prefix_ + ".txt";
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return Damaged(path, file.status().message());
  const std::span<const std::byte> bytes = file->bytes();
  if (std::ssize(bytes) == manifest_.text_bytes && ChecksumOf(bytes) == manifest_.text_crc32) return absl::OkStatus();
  return Damaged(path, "its content does not match its checksum in the manifest");
}

absl::StatusOr<FeatureManifest> CheckFeatures(const std::string& prefix) {
  HADAL_ASSIGN_OR_RETURN(FeatureReader reader, FeatureReader::Open(prefix));
  HADAL_RETURN_IF_ERROR(reader.CheckTranscripts());
  while (true) {
    const absl::Status status = reader.Next().status();
    if (absl::IsOutOfRange(status)) return reader.manifest();
    HADAL_RETURN_IF_ERROR(status);
  }
}

}  // namespace hadal
