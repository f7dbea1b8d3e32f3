// The manifest as values and as JSON: everything comes back, and every field that is missing or cannot be is named.
// Corpora that do not open for it: corpus_test.cc.
#include "runtime/data/corpus_manifest.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "runtime/crc32c.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;
using Path = Json::json_pointer;

CorpusManifest Manifest() {
  return {.samples = 30,
          .source_vocabulary = {"source.model", 100, 17},
          .target_vocabulary = {"target.model", 50, 18},
          .shards = {{"train.00000.shard", 400, 20, 7}, {"train.00001.shard", 300, 10, 8}},
          .corpora = {"one", "two"},
          .statistics = {.source_tokens = 1,
                         .target_tokens = 2,
                         .source_unknown = 3,
                         .target_unknown = 4,
                         .longest_source = 5,
                         .longest_target = 6}};
}

Json Parsed() { return Json::parse(ManifestToJson(Manifest())); }

// As text, with the checksum of what it holds now.
std::string Sealed(Json json) {
  json.erase("crc32c");
  const std::string text = json.dump();
  json["crc32c"] = Crc32c(text.data(), text.size());
  return json.dump();
}

// Why it is no manifest, without its name and what to try; "" where it is one.
std::string RefusalOfText(const std::string& text) {
  const absl::Status status = ManifestFromJson(text, "a.json").status();
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  const std::string message(status.message());
  const std::string begin = "a.json: ", end = "; restore the file from a copy, or run hadal prepare again";
  EXPECT_THAT(message, AllOf(StartsWith(begin), EndsWith(end)));
  return message.substr(begin.size(), message.size() - begin.size() - end.size());
}

// The same of the manifest above with one value set.
template <typename T>
std::string RefusalWith(const std::string& path, const T& value) {
  Json json = Parsed();
  json[Path(path)] = value;
  return RefusalOfText(Sealed(json));
}

TEST(CorpusManifest, EveryFieldComesBack) {
  const absl::StatusOr<CorpusManifest> read = ManifestFromJson(ManifestToJson(Manifest()), "a.json");
  EXPECT_EQ(read->samples, 30);
  EXPECT_EQ(read->source_vocabulary.file, "source.model");
  EXPECT_EQ(read->source_vocabulary.size, 100);
  EXPECT_EQ(read->source_vocabulary.crc32c, 17u);
  EXPECT_EQ(read->target_vocabulary.file, "target.model");
  EXPECT_EQ(read->target_vocabulary.size, 50);
  EXPECT_EQ(read->target_vocabulary.crc32c, 18u);
  EXPECT_FALSE(read->monolingual());
  EXPECT_FALSE(read->shares_vocabulary());
  ASSERT_EQ(read->shards.size(), 2u);
  EXPECT_EQ(read->shards[1].file, "train.00001.shard");
  EXPECT_EQ(read->shards[1].bytes, 300);
  EXPECT_EQ(read->shards[1].samples, 10);
  EXPECT_EQ(read->shards[1].crc32c, 8u);
  EXPECT_THAT(read->corpora, ElementsAre("one", "two"));
  const CorpusStatistics& all = read->statistics;
  EXPECT_THAT((std::vector<int64_t>{all.source_tokens, all.target_tokens, all.source_unknown, all.target_unknown,
                                    all.longest_source, all.longest_target}),
              ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(CorpusManifest, PlainTextHasOneVocabularyAndSaysSo) {
  CorpusManifest plain = Manifest();
  plain.source_vocabulary = {};
  const std::string text = ManifestToJson(plain);
  EXPECT_FALSE(Json::parse(text).contains("source_vocabulary"));
  const absl::StatusOr<CorpusManifest> read = ManifestFromJson(text, "a.json");
  EXPECT_TRUE(read->monolingual());
  EXPECT_TRUE(read->shares_vocabulary());
}

TEST(CorpusManifest, TheFormOfTextsComesBackAndIsPartOfTheIdentity) {
  CorpusManifest plain = Manifest();
  plain.source_vocabulary = {};
  std::set<uint32_t> identities = {IdentityOf(plain).crc32c};
  for (const TextForm& form : {TextForm{.block = 8}, TextForm{.block = 8, .document_mask = true},
                               TextForm{.start_token = 0, .end_token = 49, .reserved_ids = false}}) {
    plain.form = form;
    EXPECT_EQ(ManifestFromJson(ManifestToJson(plain), "a.json")->form, form);
    EXPECT_TRUE(identities.insert(IdentityOf(plain).crc32c).second);
  }
  for (const char* token : {"start_token", "end_token", "mask_token"}) {
    EXPECT_THAT(RefusalWith(absl::StrCat("/", token), 50), HasSubstr(absl::StrCat(token, " is 50"))) << "of 50 ids";
  }
  EXPECT_THAT(RefusalWith("/block", 0), HasSubstr("block is 0"));
  EXPECT_EQ(RefusalWith("/special_tokens", std::vector<int>{0, 49}), "");
  for (const std::vector<int>& wrong : {std::vector<int>{5, 5}, {50}, {-1}}) {
    EXPECT_THAT(RefusalWith("/special_tokens", wrong), HasSubstr("is no ascending ids"));
  }
  EXPECT_EQ(RefusalWith("/block", 8), "it has blocks or a tokenizer's ids, and a source");
}

TEST(CorpusManifest, EveryMissingFieldIsNamed) {
  for (const char* parent : {"", "/source_vocabulary", "/target_vocabulary", "/shards/1", "/statistics"}) {
    const Json whole = Parsed();
    for (const auto& item : whole[Path(parent)].items()) {
      const std::string& name = item.key();
      if (name == "format" || name == "crc32c" || name == "source_vocabulary") continue;
      Json json = whole;
      json[Path(parent)].erase(name);
      EXPECT_THAT(RefusalOfText(Sealed(json)), AllOf(HasSubstr(name), HasSubstr("is missing"))) << parent;
    }
  }
  Json json = Parsed();
  json["shards"][1].erase("crc32c");
  EXPECT_EQ(RefusalOfText(Sealed(json)), "the field shards[1].crc32c is missing");
  json = Parsed();
  json.erase("crc32c");
  EXPECT_EQ(RefusalOfText(json.dump()), "the field crc32c is missing");
}

TEST(CorpusManifest, NumbersKeepToTheirRange) {
  for (const char* path : {"/samples", "/shards/0/bytes", "/shards/1/samples", "/statistics/source_tokens",
                           "/statistics/target_tokens", "/statistics/source_unknown", "/statistics/target_unknown",
                           "/statistics/longest_source", "/statistics/longest_target", "/source_vocabulary/size",
                           "/target_vocabulary/size", "/target_vocabulary/crc32c", "/shards/0/crc32c"}) {
    EXPECT_THAT(RefusalWith(path, -1), HasSubstr("is -1, expected a whole number from ")) << path;
    EXPECT_THAT(RefusalWith(path, "7"), HasSubstr("a whole number from ")) << path;
  }
  EXPECT_EQ(RefusalWith("/statistics/source_unknown", 0), "");
  EXPECT_EQ(RefusalWith("/shards/0/bytes", 0), "");
  EXPECT_THAT(RefusalWith("/target_vocabulary/size", 3), HasSubstr("is 3, expected a whole number from 4"));
  EXPECT_EQ(RefusalWith("/target_vocabulary/size", 4), "");
  EXPECT_THAT(RefusalWith("/samples", int64_t{1} << 32), HasSubstr("from 0 to 4294967295"));
  EXPECT_THAT(RefusalWith("/shards/0/samples", int64_t{1} << 32), HasSubstr("from 0 to 4294967295"));
}

TEST(CorpusManifest, TheShardsSamplesAddUp) {
  EXPECT_EQ(RefusalWith("/samples", 29), "the shards have 30 samples, the field samples says 29");
  EXPECT_EQ(RefusalWith("/samples", 31), "the shards have 30 samples, the field samples says 31");
  EXPECT_EQ(RefusalWith("/shards/1/samples", 11), "the shards have 31 samples, the field samples says 30");
}

TEST(CorpusManifest, NamesLeadNowhereElseAndListsAreLists) {
  for (const char* path : {"/shards/1/file", "/source_vocabulary/file", "/target_vocabulary/file"}) {
    EXPECT_THAT(RefusalWith(path, "../elsewhere"), HasSubstr("expected a plain file name")) << path;
    EXPECT_THAT(RefusalWith(path, 3), HasSubstr("expected text")) << path;
  }
  EXPECT_EQ(RefusalWith("/corpora/1", 3), "the field corpora has an entry that is not text");
  EXPECT_EQ(RefusalWith("/corpora", "one"), "the field corpora is \"one\", expected a list");
  EXPECT_THAT(RefusalWith("/shards", 1), HasSubstr("expected a list"));
  EXPECT_THAT(RefusalWith("/shards/0", 1), HasSubstr("shards[0] is 1, not an object"));
  EXPECT_THAT(RefusalWith("/statistics", 1), HasSubstr("not an object"));
  EXPECT_THAT(RefusalWith("/source_vocabulary", Json()), HasSubstr("source_vocabulary is null, not an object"));
}

TEST(CorpusManifest, FormatVersionAndChecksumComeFirst) {
  EXPECT_EQ(RefusalWith("/format", "hadal checkpoint"), "it is not the manifest of a corpus");
  EXPECT_EQ(RefusalOfText("[]"), "it is not the manifest of a corpus");
  EXPECT_EQ(RefusalOfText("{\"format\": \"hadal corpus\"}"), "the field version is missing");
  EXPECT_EQ(RefusalWith("/version", 2), "it has format version 2, this hadal reads 1");
  EXPECT_THAT(RefusalWith("/version", -1), HasSubstr("version is -1"));
  Json edited = Parsed();
  edited["corpora"][0] = "three";
  EXPECT_THAT(RefusalOfText(edited.dump()), HasSubstr("does not match its checksum"));
  EXPECT_EQ(RefusalOfText(Parsed().dump()), "") << "layout means nothing";
  EXPECT_THAT(RefusalOfText("{"), HasSubstr("its text"));
  EXPECT_THAT(RefusalWith("/corpora/0", Json::parse("[[[1]]]")), HasSubstr("its text")) << "deeper than a manifest is";
}

// File names on disk may be any bytes; they are for people, and must not cost the corpus.
TEST(CorpusManifest, ANameThatIsNotUtf8IsWrittenWithASubstitute) {
  CorpusManifest manifest = Manifest();
  manifest.corpora = {
      "b\xFF"
      "d"};
  const absl::StatusOr<CorpusManifest> read = ManifestFromJson(ManifestToJson(manifest), "a.json");
  EXPECT_THAT(read->corpora, ElementsAre("b\uFFFDd"));
}

TEST(CorpusManifest, OlderOnesSayOnlyThatTargetsHaveTags) {
  CorpusManifest manifest = Manifest();
  EXPECT_EQ(ManifestFromJson(ManifestToJson(manifest), "a.json")->tags, "");
  manifest.tags = "m2m100";
  nlohmann::json json = nlohmann::json::parse(ManifestToJson(manifest));
  EXPECT_EQ(json["target_tags"], true) << "for readers that know only that";
  json.erase("tags");
  json.erase("crc32c");
  const std::string text = json.dump();
  json["crc32c"] = Crc32c(text.data(), text.size());
  EXPECT_EQ(ManifestFromJson(json.dump(), "a.json")->tags, "m2m100");
}

// A copy under another name, of texts elsewhere, is the same data; other samples are not.
TEST(CorpusManifest, TheIdentityIsOfTheContent) {
  const CorpusManifest manifest = Manifest();
  CorpusManifest other = manifest;
  other.shards[0].file = "elsewhere.00000.shard";
  other.target_vocabulary.crc32c += 1;
  EXPECT_EQ(IdentityOf(other), IdentityOf(manifest));
  other.shards[0].crc32c += 1;
  EXPECT_NE(IdentityOf(other), IdentityOf(manifest));
  other = manifest;
  other.corpora = {"on", "etwo"};
  EXPECT_NE(IdentityOf(other), IdentityOf(manifest)) << "each name has an end";
  other.corpora = {"one"};
  CorpusManifest renamed = other;
  renamed.corpora = {"two"};
  EXPECT_EQ(IdentityOf(renamed), IdentityOf(other)) << "nothing depends on the only one's name";
  EXPECT_EQ(Describe({.samples = 79750, .crc32c = 0x123abcd}), "79750 samples, checksum 0123abcd");
}

// Of a model and of what it is given; what either does not say fits.
TEST(InputKind, IsComparedWhereBothSayIt) {
  const InputKind model{"m2m100", 80, 16000, "utterance"};
  const auto fits = [&](const InputKind& given) {
    return CheckFeatureKind(model, given, "given").ok() && CheckFeatureKind(given, model, "given").ok();
  };
  EXPECT_TRUE(fits(model));
  EXPECT_TRUE(fits({"", 80, 0, ""}));
  EXPECT_FALSE(fits({"", 40, 16000, "utterance"}));
  EXPECT_FALSE(fits({"", 80, 8000, "utterance"}));
  EXPECT_FALSE(fits({"", 80, 16000, "none"}));
  EXPECT_EQ(DescribeFeatures(model), "80 filters at 16000 Hz, cmvn utterance");
  EXPECT_EQ(DescribeFeatures({.frame_width = 80}), "80 filters");
  EXPECT_EQ(DescribeFeatures({}), "tokens");
  EXPECT_TRUE(CheckTags(model, "m2m100", "given").ok());
  EXPECT_TRUE(CheckTags(model, "", "given").ok());
  EXPECT_EQ(CheckTags(model, "none", "given").message(),
            "given has no language tags, and the model was trained with language tags of the preset m2m100");
}

TEST(CorpusManifest, SpeechHasAFrameWidthAndNoSourceVocabulary) {
  CorpusManifest speech = Manifest();
  speech.frame_width = 40;
  EXPECT_EQ(RefusalOfText(ManifestToJson(speech)),
            "it has both frame_width and source_vocabulary: a source is either speech or text");
  EXPECT_THAT(RefusalWith("/frame_width", 0), HasSubstr("frame_width is 0"));
  EXPECT_THAT(RefusalWith("/sample_rate", 0), HasSubstr("sample_rate is 0"));
  speech.source_vocabulary = {};
  speech.cmvn = "none";
  speech.sample_rate = 8000;
  const CorpusManifest back = *ManifestFromJson(ManifestToJson(speech), "a.json");
  EXPECT_EQ(back.frame_width, 40);
  EXPECT_EQ(back.inputs(), speech.inputs());
  EXPECT_FALSE(back.monolingual());
  EXPECT_TRUE(back.shares_vocabulary());
}

}  // namespace
}  // namespace hadal
