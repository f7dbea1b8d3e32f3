#include "tests/fuzz/reader_targets.h"

#include <stdlib.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/corpus_shard.h"
#include "runtime/data/vocabulary.h"
#include "runtime/data/vocabulary_training.h"
#include "runtime/safetensors.h"
#include "tests/support/shard_bytes.h"
#include "tools/corpus/feature_reader.h"

namespace hadal::fuzz {
namespace {

using Json = nlohmann::json;

// A directory of this process, removed at its end.
class Workplace {
 public:
  Workplace() {
    HADAL_CHECK(mkdtemp(path_.data()) != nullptr);
    // What hostile names would like to reach.
    Write("outside", "secret");
    std::filesystem::create_directory(path_ + "/inside");
  }
  ~Workplace() { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary | std::ios::trunc) << bytes;
  }
  const std::string& path() const { return path_; }

 private:
  // In memory where there is such a place: files are written thousands of times.
  std::string path_ = std::string(std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + "/hadal_fuzz_XXXXXX";
};

const Workplace& TheWorkplace() {
  static const Workplace workplace;
  return workplace;
}

bool Sealed(std::string_view input) { return std::hash<std::string_view>()(input) % 8 != 0; }

// ── Safetensors ──

bool ReadSafetensors(std::string_view input) {
  TheWorkplace().Write("inside/file.safetensors", input);
  const absl::StatusOr<SafetensorsReader> reader =
      SafetensorsReader::Open(TheWorkplace().path() + "/inside/file.safetensors");
  if (!reader.ok()) return false;
  int64_t total = 0;
  for (size_t i = 0; i < reader->tensors().size(); ++i) {
    std::vector<char> data(static_cast<size_t>(reader->tensors()[i].bytes()));
    total += static_cast<int64_t>(data.size());
    HADAL_CHECK(reader->Read(static_cast<int32_t>(i), 0, static_cast<int64_t>(data.size()), data.data()).ok());
  }
  // The format leaves no gaps.
  HADAL_CHECK_EQ(total, static_cast<int64_t>(input.size()) - reader->header_bytes());
  return true;
}

std::vector<std::string> SafetensorsSeeds() {
  const std::string path = TheWorkplace().path() + "/seed.safetensors";
  std::filesystem::remove(path);
  const std::vector<SafetensorsTensor> tensors = {{"weight/encoder.fc1/0", SafetensorsType::kF32, {2, 3}},
                                                  {"empty", SafetensorsType::kF32, {0, 7}},
                                                  {"half", SafetensorsType::kBF16, {4}},
                                                  {"scalar", SafetensorsType::kI64, {}}};
  SafetensorsWriter writer = SafetensorsWriter::Create(path, tensors, {{"format", "pt"}}).value();
  HADAL_CHECK(writer.Append(std::string(24 + 8 + 8, '\5')).ok());
  HADAL_CHECK(writer.Finish().ok());
  std::ifstream in(path, std::ios::binary);
  return {std::string(std::istreambuf_iterator<char>(in), {})};
}

// ── Checkpoints ──

const std::vector<CheckpointParameter>& Parameters() {
  static const std::vector<CheckpointParameter> parameters = {
      {.name = "encoder.layers.0.fc1.weight", .rows = 3, .columns = 2, .is_vector = false},
      {.name = "encoder.layers.0.fc1.bias", .rows = 3, .columns = 1, .is_vector = true}};
  return parameters;
}

std::vector<float>& Values() {
  static std::vector<float> values(6, 0.5f);
  return values;
}

std::vector<SliceState> Slices() {
  std::vector<SliceState> slices;
  for (int32_t p = 0; p < static_cast<int32_t>(Parameters().size()); ++p) {
    const Vector view(Values().data(), Parameters()[p].elements());
    slices.push_back({.parameter = p, .slice = 0, .weight = view, .first_moment = view, .second_moment = view});
  }
  return slices;
}

// A good checkpoint of one file; its directory.
const std::string& GoodCheckpoint() {
  static const std::string directory = [] {
    CheckpointCommitter committer({.run_directory = TheWorkplace().path() + "/inside/run",
                                   .attempt = "attempt",
                                   .plan_hash = 7,
                                   .parameters = Parameters(),
                                   .retention = {}});
    HADAL_CHECK(committer.Claim().ok());
    const std::vector<SliceState> slices = Slices();
    CheckpointFileWriter writer = CheckpointFileWriter::Create(committer.FileOptions(3, 0), slices).value();
    for (const SliceState& slice : slices) HADAL_CHECK(writer.Append(slice).ok());
    const WrittenFile file = writer.Finish().value();
    CommitRequest request;
    request.progress = {.step = 3, .update = 3, .seed = 1};
    request.config_text = "seed: 1\n";
    request.model_settings = R"({"d_model": 2})";
    request.files = {file};
    request.attachments = {{"vocabulary.txt", "a 1\n"}};
    return committer.Commit(request).value().directory;
  }();
  return directory;
}

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string SealManifest(std::string_view input) {
  const std::string_view body = input.substr(0, input.rfind(kManifestCrcField));
  return absl::StrCat(std::string(body), kManifestCrcField, Crc32c(body.data(), body.size()), "\n}\n");
}

bool ParseCheckpointManifest(std::string_view input) {
  const absl::StatusOr<CheckpointManifest> manifest =
      CheckpointManifest::Parse(Sealed(input) ? SealManifest(input) : std::string(input));
  if (!manifest.ok()) return false;
  HADAL_CHECK(manifest->CheckCoverage().ok());
  HADAL_CHECK(CheckpointManifest::Parse(manifest->ToString()).ok());
  return true;
}

std::vector<std::string> ManifestSeeds() { return {Read(GoodCheckpoint() + "/manifest.json")}; }

// A whole checkpoint with this manifest: nothing outside its directory may come back.
bool OpenCheckpoint(std::string_view input) {
  static const std::string good = Read(GoodCheckpoint() + "/manifest.json");
  const std::string path = GoodCheckpoint() + "/manifest.json";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << SealManifest(input);
  bool accepted = false;
  if (absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(GoodCheckpoint()); reader.ok()) {
    accepted = reader->Verify().ok();
    for (const AttachedFile& file : reader->manifest().attachments) {
      const absl::StatusOr<std::string> contents = reader->ReadAttachment(file.name);
      HADAL_CHECK(!contents.ok() || *contents != "secret");
    }
    if (CompareParameters(reader->manifest().parameters, Parameters()).ok()) {
      const absl::Status read = reader->ReadSlices(Slices());
      if (accepted) HADAL_CHECK(read.ok() || !reader->manifest().has_moments);
    }
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << good;
  return accepted;
}

bool ParseRankRecord(std::string_view input) {
  const absl::StatusOr<WrittenFile> file = WrittenFile::Parse(input);
  if (!file.ok()) return false;
  HADAL_CHECK(*WrittenFile::Parse(file->ToString()) == *file);
  return true;
}

std::vector<std::string> RankRecordSeeds() {
  return {CheckpointReader::Open(GoodCheckpoint())->manifest().files.front().ToString()};
}

// ── Corpora ──

bool ParseCorpusManifest(std::string_view input) {
  std::string text(input);
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (Sealed(input) && json.is_object()) {
    json.erase("crc32c");
    const std::string canonical = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    json["crc32c"] = Crc32c(canonical.data(), canonical.size());
    text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const absl::StatusOr<CorpusManifest> manifest = ManifestFromJson(text, "a manifest");
  if (!manifest.ok()) return false;
  for (const ShardReference& shard : manifest->shards) HADAL_CHECK(IsPlainFileName(shard.file));
  HADAL_CHECK(ManifestFromJson(ManifestToJson(*manifest), "the same").ok());
  return true;
}

std::vector<std::string> CorpusManifestSeeds() {
  return {ManifestToJson({.samples = 5,
                          .source_vocabulary = {"data.model", 300, 1},
                          .target_vocabulary = {"data.model", 300, 1},
                          .shards = {{"train.00000.shard", 400, 3, 7}, {"train.00001.shard", 200, 2, 8}},
                          .corpora = {"a.en", "b.en"},
                          .statistics = {1, 2, 3, 4, 5, 6}})};
}

// Opens a shard whose manifest says what its header says, and has its size and checksum.
absl::StatusOr<std::unique_ptr<CorpusShard>> OpenShard(std::string_view input, const ShardLimits& limits) {
  ShardHeader header;
  input.copy(reinterpret_cast<char*>(&header), sizeof(header));
  TheWorkplace().Write("inside/a.shard", input);
  return CorpusShard::Open(TheWorkplace().path() + "/inside/a.shard",
                           {.bytes = static_cast<int64_t>(input.size()),
                            .samples = header.samples,
                            .crc32c = Crc32c(input.data(), input.size())},
                           limits);
}

bool ReadCorpusShard(std::string_view input) {
  const absl::StatusOr<std::unique_ptr<CorpusShard>> shard =
      OpenShard(input, {.source_vocabulary_size = 50, .target_vocabulary_size = 60, .corpora = 2});
  if (!shard.ok()) return false;
  for (int64_t i = 0; i < (*shard)->samples(); ++i) {
    const SampleView sample = (*shard)->sample(i);
    HADAL_CHECK(sample.corpus_id >= 0 && sample.corpus_id < 2);
    for (const int32_t id : sample.prefix) HADAL_CHECK(id >= 0 && id < 50);
    for (const int32_t id : sample.source) HADAL_CHECK(id >= 0 && id < 50);
    for (const int32_t id : sample.target) HADAL_CHECK(id >= 0 && id < 60);
  }
  return true;
}

std::vector<std::string> CorpusShardSeeds() {
  ShardBuilder builder;
  const std::vector<int32_t> tokens = {4, 5, 6, 7, 49};
  for (size_t n = 1; n <= tokens.size(); ++n) {
    HADAL_CHECK(builder
                    .Add({.corpus_id = static_cast<int32_t>(n % 2),
                          .weight = 1.5f,
                          .prefix = std::span(tokens).first(n / 4),
                          .source = std::span(tokens).first(n),
                          .target = std::span(tokens).last(n)})
                    .ok());
  }
  return {BytesOf(builder)};
}

// A shard of speech, frames of three values.
bool ReadSpeechShard(std::string_view input) {
  const absl::StatusOr<std::unique_ptr<CorpusShard>> shard =
      OpenShard(input, {.target_vocabulary_size = 60, .corpora = 1, .frame_width = 3});
  if (!shard.ok()) return false;
  for (int64_t i = 0; i < (*shard)->samples(); ++i) {
    const SampleView sample = (*shard)->sample(i);
    HADAL_CHECK(sample.prefix.empty() && sample.source.empty() && sample.frames.size() % 3 == 0);
    for (const float value : sample.frames) HADAL_CHECK(std::isfinite(value));
    for (const int32_t id : sample.target) HADAL_CHECK(id >= 0 && id < 60);
  }
  return true;
}

std::vector<std::string> SpeechShardSeeds() {
  ShardBuilder builder;
  for (size_t n = 1; n <= 4; ++n) {
    const Sample sample = {.target = {4, 59}, .frames = std::vector<float>(3 * n, 0.5f), .frame_width = 3};
    HADAL_CHECK(builder.Add(sample.view()).ok());
  }
  return {BytesOf(builder)};
}

// ── Features ──

// A shard whose manifest says what its header says, and has its size and checksum.
bool ReadFeatures(std::string_view input) {
  constexpr size_t kHeader = 32;
  uint32_t fields[4] = {};
  int64_t frames = 0;
  if (input.size() >= kHeader) {
    std::memcpy(fields, input.data() + 8, sizeof(fields));
    std::memcpy(&frames, input.data() + 24, sizeof(frames));
  }
  const std::string_view body = input.substr(std::min(kHeader, input.size()));
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  const Json shard = {{"file", "f.00000.features"},
                      {"bytes", input.size()},
                      {"utterances", fields[3]},
                      {"frames", frames},
                      {"crc32", crc}};
  const Json manifest = {{"format", "hadal features"},
                         {"version", 1},
                         {"frame_width", fields[1]},
                         {"sample_rate", fields[2]},
                         {"cmvn", "none"},
                         {"utterances", fields[3]},
                         {"frames", frames},
                         {"shards", Json::array({shard})}};
  TheWorkplace().Write("inside/f.json", manifest.dump());
  TheWorkplace().Write("inside/f.00000.features", input);
  return CheckFeatures(TheWorkplace().path() + "/inside/f").ok();
}

std::vector<std::string> FeaturesSeeds() {
  std::string bytes = "hadalfea";
  for (const uint32_t field : {1u, 2u, 8000u, 2u}) AppendValue(field, bytes);
  AppendValue(int64_t{3}, bytes);
  for (const uint32_t frames : {1u, 2u}) {
    AppendValue(frames, bytes);
    bytes += AsBytes(std::vector<float>(2 * frames, -1.5f));
  }
  return {bytes};
}

// ── Vocabularies ──

bool ParseVocabulary(std::string_view input) {
  const absl::StatusOr<Vocabulary> vocabulary = Vocabulary::Parse(std::string(input), "a vocabulary");
  if (!vocabulary.ok()) return false;
  const std::vector<int32_t> ids = vocabulary->Encode("a b\xc3\xa9 \xff</s>\t the unknown");
  for (const int32_t id : ids) HADAL_CHECK(id >= 0 && id < vocabulary->size());
  vocabulary->Decode(ids);
  return true;
}

std::vector<std::string> DictionarySeeds() {
  return {"the 12\na 7\n\xc3\xa9 3\nb@@ 1\n", "one 1 #fairseq:overwrite\n"};
}

std::vector<std::string> PieceModelSeeds() {
  std::vector<std::string> sentences;
  for (int i = 0; i < 40; ++i)
    sentences.push_back(absl::StrCat("the cat number ", i, " sees a dog of ", i * 7, " years"));
  return {TrainVocabulary({.size = 60}, sentences)->contents()};
}

constexpr ReaderTarget kTargets[] = {
    {"safetensors", &ReadSafetensors, &SafetensorsSeeds},
    {"checkpoint_manifest", &ParseCheckpointManifest, &ManifestSeeds},
    {"checkpoint_directory", &OpenCheckpoint, &ManifestSeeds},
    {"rank_record", &ParseRankRecord, &RankRecordSeeds},
    {"corpus_manifest", &ParseCorpusManifest, &CorpusManifestSeeds},
    {"corpus_shard", &ReadCorpusShard, &CorpusShardSeeds},
    {"speech_shard", &ReadSpeechShard, &SpeechShardSeeds},
    {"features", &ReadFeatures, &FeaturesSeeds},
    {"dictionary", &ParseVocabulary, &DictionarySeeds},
    {"piece_model", &ParseVocabulary, &PieceModelSeeds},
};

}  // namespace

std::span<const ReaderTarget> ReaderTargets() { return kTargets; }

const ReaderTarget& FindReaderTarget(std::string_view name) {
  for (const ReaderTarget& target : kTargets) {
    if (target.name == name) return target;
  }
  HADAL_CHECK(false);
  std::abort();
}

}  // namespace hadal::fuzz
