#include "pipeline/checkpoint/checkpoint_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/crc32c.h"

namespace hadal {
namespace {

using testing::HasSubstr;

CheckpointManifest SmallManifest() {
  CheckpointManifest manifest;
  manifest.progress = {.step = 3,
                       .update = 2,
                       .seed = 11,
                       .epochs_done = 1.5,
                       .place = {.epoch = 390,
                                 .read = 17,
                                 .shuffling = {.seed = 18446744073709551615u, .capacity = {31, 32, 33}},
                                 .texts = {{.shuffling = {.seed = 18446744073709551615u, .capacity = {31, 32, 33}},
                                            .pass = 390,
                                            .quota = 70},
                                           {.shuffling = {.seed = 5, .capacity = {31, 30}}, .read = 3, .quota = 8}}},
                       .training_data = {.samples = 78, .crc32c = 4294967295},
                       .samples_seen = 12,
                       .target_tokens_seen = 13,
                       .training_seconds = 14.5,
                       .validation_nll = 1.0 / 3,
                       .validation_data = {.samples = 4, .crc32c = 9},
                       .validation_metric = "bleu 13a of 4 sentences",
                       .best = {{.step = 1, .score = 1.0 / 7}, {.step = 2, .score = 0.1}},
                       .validations_without_improvement = 16,
                       .validation_due = true,
                       .loss_trend = {.losses = 2, .mean = 2.0 / 3, .variance = 1.0 / 7},
                       .skipped_in_a_row = 17,
                       .updates_before = 100};
  manifest.attempt = "attempt";
  manifest.time = absl::FromUnixSeconds(1'700'000'000);
  manifest.model_settings = R"({"d_model":4})";
  manifest.inputs = {.tags = "none", .frame_width = 80, .sample_rate = 16000, .cmvn = "utterance"};
  manifest.parameters = {{.name = "p", .rows = 1025, .columns = 1024, .is_vector = false},
                         {.name = "q", .rows = 5, .columns = 1, .is_vector = true}};
  const std::array<std::optional<uint32_t>, 3> crc = {1, 4294967295, 3};
  manifest.files = {{.name = "rank_00000.safetensors", .bytes = 10, .crc32c = 7, .slices = {{0, 0, crc}, {1, 0, crc}}},
                    {.name = "rank_00001.safetensors", .bytes = 20, .crc32c = 8, .slices = {{0, 1, crc}}}};
  manifest.attachments = {{.name = "vocabulary.model", .bytes = 3, .crc32c = 9}};
  return manifest;
}

// The manifest with one text replaced and its checksum made right again: a clever adversary, or a bug.
absl::Status ParseEdited(const std::string& from, const std::string& to) {
  std::string text = SmallManifest().ToString();
  EXPECT_THAT(text, HasSubstr(from));
  text = text.substr(0, text.rfind(kManifestCrcField));
  text = absl::StrReplaceAll(text, {{from, to}});
  text = absl::StrCat(text, kManifestCrcField, Crc32c(text.data(), text.size()), "\n}\n");
  return CheckpointManifest::Parse(text).status();
}

std::string Reason(const std::string& from, const std::string& to) {
  const absl::Status status = ParseEdited(from, to);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << from << " -> " << to;
  return std::string(status.message());
}

TEST(CheckpointManifestTest, AnEarlierCheckpointMayLackLaterFields) {
  for (const char* field : {"\"validation_due\"", "\"skipped_in_a_row\"", "\"place\"", "\"training_data\"",
                            "\"validation_data\"", "\"updates_before\"", "\"inputs\"", "\"sample_rate\""}) {
    EXPECT_TRUE(ParseEdited(field, "\"of another time\"").ok()) << field;
  }
  EXPECT_THAT(Reason("\"validation_due\":true", "\"validation_due\":7"), HasSubstr("validation_due"));
  EXPECT_THAT(Reason("\"epoch\":390", "\"epoch\":-1"), HasSubstr("progress.place.epoch"));
  EXPECT_THAT(Reason("\"quota\":8", "\"quota\":\"8\""), HasSubstr("progress.place.texts[1].quota"));
  EXPECT_THAT(Reason("\"samples\":78", "\"samples\":0"), HasSubstr("training_data.samples"));
}

TEST(CheckpointManifestTest, ReadsBackWhatItWrote) {
  const CheckpointManifest manifest = SmallManifest();
  const auto parsed = CheckpointManifest::Parse(manifest.ToString());
  EXPECT_EQ(parsed->progress, manifest.progress);
  EXPECT_EQ(parsed->attempt, manifest.attempt);
  EXPECT_EQ(parsed->time, manifest.time);
  EXPECT_EQ(parsed->model_settings, manifest.model_settings);
  EXPECT_EQ(parsed->inputs, manifest.inputs);
  EXPECT_EQ(parsed->parameters, manifest.parameters);
  EXPECT_EQ(parsed->files, manifest.files);
  EXPECT_EQ(parsed->attachments, manifest.attachments);
  EXPECT_EQ(parsed->ToString(), manifest.ToString());
  EXPECT_THAT(manifest.ToString(), HasSubstr("\"time\": \"2023-11-14T22:13:20Z\""));
}

TEST(CheckpointManifestTest, FileRecordsTravelAsText) {
  for (const WrittenFile& file : SmallManifest().files) EXPECT_EQ(*WrittenFile::Parse(file.ToString()), file);
  EXPECT_EQ(WrittenFile::Parse("{}").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(WrittenFile::Parse("").status().code(), absl::StatusCode::kDataLoss);
}

TEST(CheckpointManifestTest, NewerFormatsAreNotGuessedAt) {
  EXPECT_EQ(ParseEdited("\"format\": 1", "\"format\": 2").code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CheckpointManifestTest, PathTricksAreRefused) {
  for (const char* name : {"../x", "/etc/passwd", "..", ".", "", "a/b", "x\\u0000y"}) {
    EXPECT_THAT(Reason("rank_00001.safetensors", name), HasSubstr("file name")) << name;
    EXPECT_THAT(Reason("vocabulary.model", name), HasSubstr("file name")) << name;
  }
  EXPECT_THAT(Reason("vocabulary.model", "manifest.json"), HasSubstr("listed twice"));
  EXPECT_THAT(Reason("vocabulary.model", "rank_00000.safetensors"), HasSubstr("listed twice"));
  EXPECT_THAT(Reason("[\"q\",5]", "[\"../q\",5]"), HasSubstr("no parameter name"));
  EXPECT_THAT(Reason("[\"q\",5]", "[\"p\",5]"), HasSubstr("listed twice"));
}

TEST(CheckpointManifestTest, EverySliceIsListedExactlyOnce) {
  EXPECT_THAT(Reason("[0,1,1,", "[0,0,1,"), HasSubstr("weight/p/0 is listed twice"));
  EXPECT_THAT(Reason("[0,1,1,", "[0,2,1,"), HasSubstr("does not have"));
  EXPECT_THAT(Reason("[0,1,1,", "[2,0,1,"), HasSubstr("does not have"));
  EXPECT_THAT(Reason("[0,1,1,", "[-1,0,1,"), HasSubstr("malformed"));
  EXPECT_THAT(Reason("[1,0,1,4294967295,3]", "[1,0,null,4294967295,3]"), HasSubstr("weight/q/0 is in no file"));
  EXPECT_THAT(Reason("[1,0,1,4294967295,3]", "[1,0,1,null,3]"), HasSubstr("adam_m/q/0 is in no file"));
  EXPECT_THAT(Reason("\"has_moments\": true", "\"has_moments\": false"), HasSubstr("has no moments"));
  EXPECT_THAT(Reason("[1,0,1,4294967295,3]", "[1,0,1,4294967296,3]"), HasSubstr("checksum"));
}

TEST(CheckpointManifestTest, DeclaredSizesAllocateNothing) {
  EXPECT_THAT(Reason("[\"q\",5]", "[\"q\",1125899906842624]"), HasSubstr("weight/q/1 is in no file"));
  EXPECT_THAT(Reason("[\"q\",5]", "[\"q\",9223372036854775807]"), HasSubstr("impossible shape"));
  EXPECT_THAT(Reason("[\"q\",5]", "[\"q\",4294967296,4294967296]"), HasSubstr("impossible shape"));
  EXPECT_THAT(Reason("[\"q\",5]", "[\"q\",18446744073709551615]"), HasSubstr("not [name, rows, columns]"));
  EXPECT_THAT(Reason("[\"q\",5]", "[\"q\",0]"), HasSubstr("impossible shape"));
  EXPECT_THAT(Reason("[\"q\",5]", "[\"q\",5,1,1]"), HasSubstr("not [name, rows, columns]"));
}

TEST(CheckpointManifestTest, WrongTypesAreRefused) {
  EXPECT_THAT(Reason("\"step\":3", "\"step\":-3"), HasSubstr("progress.step is -3"));
  EXPECT_THAT(Reason("\"step\":3", "\"step\":1"),
              HasSubstr("progress.update is 2, expected a whole number from 0 to 1"));
  EXPECT_THAT(Reason("\"step\":3", "\"step\":3.5"), HasSubstr("progress.step is 3.5"));
  EXPECT_THAT(Reason("\"step\":3", "\"step\":\"3\""), HasSubstr("progress.step is \"3\""));
  EXPECT_THAT(Reason("\"step\":3", "\"stop\":3"), HasSubstr("progress.step is missing"));
  EXPECT_THAT(Reason("{\"d_model\":4}", "[[[[[[]]]]]]"), HasSubstr("deeper"));
  EXPECT_THAT(Reason("\"slice_elements\": 1048576", "\"slice_elements\": 1000"), HasSubstr("slices of 1000"));
  EXPECT_THAT(Reason("\"attempt\": ", "\"format\": 1,\n\"attempt\": "), HasSubstr("twice"));
}

}  // namespace
}  // namespace hadal
