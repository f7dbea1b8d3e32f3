// Reads event files with a decoder of its own: framing, checksums (bit by bit) and protobuf wire format by hand, with
// the field numbers of TensorFlow's event.proto. TensorBoard 2.21's EventAccumulator was seen to read the same files.
#include "tools/output/tensorboard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gmock/gmock.h"
#include "tests/support/numbered_step.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

uint32_t MaskedCrc(const std::string& data) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

template <typename T>
T Read(const std::string& bytes, size_t at) {
  T value{};
  EXPECT_LE(at + sizeof(T), bytes.size());
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::vector<std::string> Records(const std::string& path) {
  const std::string bytes = Contents(path);
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = Read<uint64_t>(bytes, at);
    EXPECT_EQ(Read<uint32_t>(bytes, at + 8), MaskedCrc(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(Read<uint32_t>(bytes, at + 12 + length), MaskedCrc(records.back()));
    at += 16 + length;
  }
  return records;
}

// One message: field number → the raw values in order (a varint as its 8 bytes).
struct Message {
  std::map<int, std::vector<std::string>> fields;

  bool Has(int field) const { return fields.count(field) > 0; }
  std::string Bytes(int field) const { return Has(field) ? fields.at(field).front() : std::string(); }
  template <typename T>
  T Number(int field) const {
    return Has(field) ? Read<T>(Bytes(field), 0) : T{};
  }
};

uint64_t ReadVarint(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; at < bytes.size(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes[at++]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

Message Decode(const std::string& bytes) {
  Message message;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t key = ReadVarint(bytes, at);
    std::string value;
    if ((key & 7) == 0) {
      const uint64_t number = ReadVarint(bytes, at);
      value.assign(reinterpret_cast<const char*>(&number), sizeof(number));
    } else {
      const size_t length = (key & 7) == 2 ? ReadVarint(bytes, at) : (key & 7) == 1 ? 8 : 4;
      value = bytes.substr(at, length);
      at += length;
    }
    message.fields[static_cast<int>(key >> 3)].push_back(value);
  }
  return message;
}

// Tag → value message of a summary event.
std::map<std::string, Message> Values(const Message& event) {
  std::map<std::string, Message> values;
  const Message summary = Decode(event.Bytes(5));
  if (!summary.Has(1)) return values;
  for (const std::string& bytes : summary.fields.at(1)) {
    const Message value = Decode(bytes);
    values[value.Bytes(1)] = value;
  }
  return values;
}

std::vector<double> Doubles(const std::string& packed) {
  std::vector<double> values(packed.size() / sizeof(double));
  std::memcpy(values.data(), packed.data(), values.size() * sizeof(double));
  return values;
}

class TensorBoardTest : public ::testing::Test {
 protected:
  TensorBoardTest() { sink_ = TensorBoard::Open({.directory = directory_ / "run/tb", .depth_every_steps = 5}).value(); }
  // The events after the version, decoded.
  std::vector<Message> Events() {
    EXPECT_TRUE(sink_->Flush().ok());
    std::vector<Message> events;
    for (const std::string& record : Records(sink_->path())) events.push_back(Decode(record));
    EXPECT_EQ(events.at(0).Bytes(3), "brain.Event:2");
    EXPECT_EQ(Decode(events.at(1).Bytes(7)).Number<uint64_t>(1), 1u) << "SessionLog START";
    EXPECT_EQ(events.at(1).Number<uint64_t>(2), 0u) << "which is for all that a running TensorBoard has read";
    events.erase(events.begin(), events.begin() + 2);
    return events;
  }
  // Starts attempt `number` at `first_step`.
  void Resume(int number, int64_t first_step, absl::Status owns = absl::OkStatus()) {
    auto next = TensorBoard::Open({.directory = directory_ / "run/tb",
                                   .first_step = first_step,
                                   .attempt = absl::StrCat("6921b5aa-", number, "-09abcdef"),
                                   .may_write = [owns] { return owns; }});
    EXPECT_EQ(next.status(), owns);
    if (owns.ok()) sink_ = *std::move(next);
  }
  // The steps of the validations in all files that TensorBoard reads, in the order of names.
  std::vector<uint64_t> Validations() const {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / "run/tb")) files.insert(entry.path());
    std::vector<uint64_t> steps;
    for (const std::string& file : files) {
      if (file.find("tfevents") == std::string::npos) continue;
      for (const std::string& record : Records(file)) {
        const Message event = Decode(record);
        if (Values(event).count("valid/nll") > 0) steps.push_back(event.Number<uint64_t>(2));
      }
    }
    return steps;
  }
  void Validate(std::initializer_list<int64_t> steps) {
    for (const int64_t step : steps) sink_->OnValidation({.step = step, .nll = 1});
  }
  const TemporaryDirectory directory_;
  std::unique_ptr<TensorBoard> sink_;
};

TEST_F(TensorBoardTest, NamesItsFileAsTensorBoardExpects) {
  EXPECT_THAT(std::filesystem::path(sink_->path()).filename().string(), StartsWith("events.out.tfevents."));
}

TEST_F(TensorBoardTest, WritesAStepsScalars) {
  sink_->OnStep({.step = 300, .gradient_norm = INFINITY, .skipped = true, .stages = {{}, {.wait_seconds = 0.125}}});
  const auto events = Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].Number<uint64_t>(2), 300u);
  EXPECT_GT(events[0].Number<double>(1), 1.6e9);
  auto values = Values(events[0]);
  EXPECT_EQ(values["train/gradient_norm"].Number<float>(2), INFINITY);
  EXPECT_EQ(values["train/skipped"].Number<float>(2), 1.0f);
  EXPECT_EQ(values.count("pipe/bubble/analytic"), 0u);
  EXPECT_EQ(values["pipe/stage_1/wait"].Number<float>(2), 0.125f);
  EXPECT_EQ(values.count("depth/log10_gradient_norm"), 0u);
}

TEST_F(TensorBoardTest, EveryNumberHasItsTag) {
  sink_->OnStep(NumberedStep());
  sink_->OnValidation({.step = 2,
                       .nll = 30,
                       .perplexity = 31,
                       .scores = TranslationScores{32, 33, 34, 35},
                       .corpora = {{.corpus = "en-de", .nll = 36}}});
  sink_->OnCheckpoint({.step = 3, .seconds = 37, .stall_seconds = 38});
  std::map<std::string, float> found;
  for (const Message& event : Events()) {
    for (const auto& [tag, value] : Values(event)) found[tag] = value.Number<float>(2);
  }
  EXPECT_THAT(found, UnorderedElementsAre(Pair("train/loss", 4), Pair("train/nll", 5), Pair("train/ppl", 6),
                                          Pair("train/lr", 7), Pair("train/gradient_norm", 8),
                                          Pair("perf/tokens_per_second", 10), Pair("perf/step_seconds", 11),
                                          Pair("train/epoch", 13), Pair("pipe/stage_0/forward", 14),
                                          Pair("pipe/stage_0/recompute", 15), Pair("pipe/stage_0/backward", 16),
                                          Pair("pipe/stage_0/wait", 17), Pair("pipe/stage_0/communication", 18),
                                          Pair("pipe/stage_0/optimizer", 19), Pair("pipe/stage_0/checkpoint", 20),
                                          Pair("pipe/stage_0/core_wait", 21), Pair("pipe/bubble/measured", 25),
                                          Pair("pipe/bubble/analytic", 26), Pair("valid/nll", 30),
                                          Pair("valid/ppl", 31), Pair("valid/bleu", 32), Pair("valid/chrf", 33),
                                          Pair("valid/wer", 34), Pair("valid/cer", 35), Pair("corpora/en-de/nll", 36),
                                          Pair("checkpoint/seconds", 37), Pair("checkpoint/stall_seconds", 38)));
}

TEST_F(TensorBoardTest, TextsAreTaggedByTheirKind) {
  for (const TextKind kind : {TextKind::kNotice, TextKind::kWarning, TextKind::kDiagnosis, TextKind::kSample})
    sink_->OnText(1, kind, "x");
  std::vector<std::string> tags;
  for (const Message& event : Events()) {
    for (const auto& [tag, value] : Values(event)) tags.push_back(tag);
  }
  EXPECT_EQ(tags, (std::vector<std::string>{"notice", "warning", "diagnosis", "sample"}));
}

TEST_F(TensorBoardTest, WritesTheDepthAsAHistogram) {
  sink_->OnStart({.encoder_sublayers = 2, .decoder_sublayers = 4});
  sink_->OnStep({.step = 5, .depth_gradient_norms = {0.1f, 10.0f, 1.0f, 0.0f, NAN, 4.0f}});
  sink_->OnStep({.step = 6, .depth_gradient_norms = {1.0f}});
  const auto events = Events();
  ASSERT_EQ(events.size(), 2u);
  auto values = Values(events[0]);
  const Message histogram = Decode(values["depth/log10_gradient_norm"].Bytes(5));
  EXPECT_EQ(histogram.Number<double>(3), 4);
  EXPECT_NEAR(histogram.Number<double>(1), -1, 1e-6);
  EXPECT_NEAR(histogram.Number<double>(2), 1, 1e-6);
  const double log4 = std::log10(4.0);
  EXPECT_NEAR(histogram.Number<double>(4), -1 + 1 + 0 + log4, 1e-6) << "the sum";
  EXPECT_NEAR(histogram.Number<double>(5), 1 + 1 + 0 + log4 * log4, 1e-6) << "of squares";
  const std::vector<double> limits = Doubles(histogram.Bytes(6));
  EXPECT_NEAR(limits.front(), -0.9, 1e-9) << "ten buckets a decade";
  EXPECT_NEAR(limits.back(), 1.1, 1e-9);
  const std::vector<double> counts = Doubles(histogram.Bytes(7));
  ASSERT_EQ(limits.size(), counts.size());
  double total = 0;
  for (const double count : counts) total += count;
  EXPECT_EQ(total, 4);
  EXPECT_GT(limits.back(), 1 - 1e-6);
  EXPECT_NEAR(values["depth/gradient_norm/encoder_bottom"].Number<float>(2), 0.1, 1e-6);
  EXPECT_NEAR(values["depth/gradient_norm/encoder_top"].Number<float>(2), 10, 1e-4);
  EXPECT_NEAR(values["depth/gradient_norm/decoder_bottom"].Number<float>(2), 1, 1e-6);
  EXPECT_NEAR(values["depth/gradient_norm/decoder_top"].Number<float>(2), 4, 1e-5);
  EXPECT_EQ(Values(events[1]).count("depth/log10_gradient_norm"), 0u);
}

TEST_F(TensorBoardTest, WritesWhatTheInstrumentsSaw) {
  sink_->OnStart({.encoder_sublayers = 4, .decoder_sublayers = 3});
  DepthMetrics depth{.step = 7, .model_update = 0.75};
  depth[DepthSeries::kUpdateRatio] = {0.01f, 1.0f, 0.1f, 50.0f, 4.0f, 4.0f, INFINITY};
  depth[DepthSeries::kActive] = {NAN, 0.5f, NAN, 0.25f, NAN, NAN, 0.125f};
  sink_->OnDepth(depth);
  auto values = Values(Events().at(0));
  EXPECT_EQ(values["depth/model_update"].Number<float>(2), 0.75f);
  EXPECT_NEAR(values["depth/update_ratio/encoder_bottom"].Number<float>(2), 0.1, 1e-6);  // geometric
  EXPECT_NEAR(values["depth/update_ratio/decoder_top"].Number<float>(2), 4, 1e-5);
  EXPECT_EQ(values["depth/active/encoder_top"].Number<float>(2), 0.375f);  // of those that have it
  EXPECT_EQ(values["depth/active/decoder_bottom"].Number<float>(2), 0.125f);
  EXPECT_EQ(values.count("depth/similarity/encoder_top"), 0u);
  DepthMetrics deep{.step = 8};
  deep[DepthSeries::kActive].assign(4 + 40, 1.0f);
  std::fill_n(deep[DepthSeries::kActive].begin() + 4, 3, 0.0f);
  sink_->OnDepth(deep);
  EXPECT_EQ(Values(Events().at(1))["depth/active/decoder_bottom"].Number<float>(2), 0.25f) << "of a tenth of forty";
  sink_->OnStep({.step = 1, .depth_gradient_norms = {1.0f}});
  EXPECT_EQ(Values(Events().at(2)).count("depth/log10_gradient_norm"), 1u) << "also at the first step";
}

TEST_F(TensorBoardTest, WritesTextAsABlockAndNoScoreThatWasNotMade) {
  sink_->OnValidation({.step = 9, .nll = 2.5});
  sink_->OnCheckpoint({.step = 9, .in_memory = true});
  sink_->OnText(9, TextKind::kSample, "source: das Haus\nhypothesis: <unk>");
  const auto events = Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(Values(events[0]).count("valid/bleu"), 0u);
  const Message text = Values(events[1])["sample"];
  EXPECT_EQ(Decode(Decode(text.Bytes(9)).Bytes(1)).Bytes(1), "text");
  EXPECT_EQ(Decode(text.Bytes(8)).Number<uint64_t>(1), 7u);
  EXPECT_EQ(Decode(text.Bytes(8)).Bytes(8), "    source: das Haus\n    hypothesis: <unk>");
}

TEST_F(TensorBoardTest, WhatAResumedRunDoesNotRepeatIsGone) {
  Resume(1, 1);
  Validate({0, 20, 31, 40});
  Resume(2, 31);
  EXPECT_THAT(Validations(), ElementsAre(0, 20)) << "before its own first validation";
  Validate({35});
  Resume(3, 36);
  Validate({50});
  EXPECT_THAT(Validations(), ElementsAre(0, 20, 35, 50));
  Resume(4, 1);  // told to begin anew
  EXPECT_THAT(Validations(), ElementsAre(0));
}

TEST_F(TensorBoardTest, AnAttemptThatHasLostTheDirectoryReplacesNothing) {
  Resume(1, 1);
  Validate({20, 40});
  Resume(2, 31, absl::AbortedError("taken over"));
  EXPECT_THAT(Validations(), ElementsAre(20, 40));
  const std::unique_ptr<TensorBoard> earlier = std::move(sink_);
  Resume(3, 31);
  earlier->OnValidation({.step = 60, .nll = 1});
  EXPECT_THAT(Validations(), ElementsAre(20)) << "what it writes then has no name";
}

// Files with a START at their first step, as hadal 0.1 wrote them, one for each attempt.
TEST_F(TensorBoardTest, SeveralEarlierFilesAreOne) {
  const std::string tb = directory_ / "run/tb/";
  const auto number = [](int key, int64_t value) { return std::string(1, static_cast<char>(key << 3)) + char(value); };
  const auto text = [](int key, const std::string& value) {
    return std::string(1, static_cast<char>(key << 3 | 2)) + char(value.size()) + value;
  };
  const auto start = [&](int64_t step) { return FrameRecord(number(2, step) + text(7, number(1, 1))); };
  const auto validation = [&](int64_t step) {
    return FrameRecord(number(2, step) + text(5, text(1, text(1, "valid/nll"))));
  };
  std::string damaged = validation(25);
  damaged[14] ^= 1;
  SetContents(tb + "events.out.tfevents.1600000001.h.6921b5aa-1-09abcdef",
              start(1) + validation(20) + damaged + validation(40) + validation(60));
  SetContents(tb + "events.out.tfevents.1600000002.h.6921b5aa-2-09abcdef", start(50) + validation(70));
  SetContents(tb + "events.out.tfevents.1600000003.h.6921b5aa-3-09abcdef",
              start(31) + validation(35) + validation(90).substr(0, 20));
  const std::string foreign = tb + "events.out.tfevents.1600000004.h.1234.0";
  SetContents(foreign, validation(99));
  SetContents(tb + "events.6921b5aa-4-09abcdef", "left by a crash");
  Resume(5, 80);
  EXPECT_THAT(Validations(), ElementsAre(99, 20, 35));
  EXPECT_TRUE(std::filesystem::exists(foreign)) << "another program's";
  EXPECT_FALSE(std::filesystem::exists(tb + "events.6921b5aa-4-09abcdef"));
}

// As a block of code, whose lines and signs stay.
TEST_F(TensorBoardTest, EachStartHasItsConfig) {
  sink_ = *TensorBoard::Open({.directory = directory_ / "other", .config = "seed: 1\nmodel {\n"});
  sink_->OnStart({.first_step = 120});
  const auto events = Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].Number<uint64_t>(2), 120u);
  const Message text = Values(events[0])["config"];
  EXPECT_EQ(Decode(Decode(text.Bytes(9)).Bytes(1)).Bytes(1), "text");
  EXPECT_EQ(Decode(text.Bytes(8)).Bytes(8), "    seed: 1\n    model {\n    ");
}

}  // namespace
}  // namespace hadal
