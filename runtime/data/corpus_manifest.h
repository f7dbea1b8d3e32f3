// The manifest of a corpus: the contents of PREFIX.json as plain values.
//
// The JSON contains a checksum of its own content (`crc32c`), so an edited or damaged manifest is refused, too.
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/input_kind.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

struct VocabularyReference {
  std::string file;     // relative to the manifest
  int32_t size = 0;     // ids, including special ones
  uint32_t crc32c = 0;  // of the file's bytes
};

struct ShardReference {
  std::string file;  // relative to the manifest
  int64_t bytes = 0;
  int64_t samples = 0;
  uint32_t crc32c = 0;  // of the whole file
};

// Counts over a corpus's samples, without `</s>`. A corpus of `prepare --block` consists of blocks of
// a stream of documents; a block counts with all its tokens, `</s>` among them.
struct CorpusStatistics {
  int64_t source_tokens = 0;  // including prefix tokens; of speech: frames
  int64_t target_tokens = 0;
  int64_t source_unknown = 0;  // tokens that are <unk>
  int64_t target_unknown = 0;
  int64_t longest_source = 0;  // tokens of one sample, including its prefix; for speech: frames
  int64_t longest_target = 0;
};

struct CorpusManifest {
  static constexpr std::string_view kFormat = "hadal corpus";
  static constexpr int32_t kFormatVersion = 1;

  int64_t samples = 0;
  VocabularyReference source_vocabulary;  // empty for monolingual text and speech
  VocabularyReference target_vocabulary;  // equal to the source's if both sides share one
  std::vector<ShardReference> shards;
  std::vector<std::string> corpora;  // [corpus id] names of the corpora that the samples are from
  CorpusStatistics statistics;
  int32_t mask_token = -1;  // id of the vocabulary's mask token; −1: it has none
  // Ids that are never masked, the mask token among them, ascending. Empty without a mask token, and in corpora of
  // earlier versions, on which masked training is refused.
  std::vector<int32_t> special_tokens;
  // Fields of InputKind (input_kind.h).
  std::string tags;
  int32_t frame_width = 0;
  int32_t sample_rate = 0;
  std::string cmvn;
  TextForm form;

  InputKind inputs() const { return {tags, frame_width, sample_rate, cmvn}; }
  // Whether every target begins with its language's tag (language_tags.h).
  bool target_tags() const { return tags == "m2m100"; }
  bool monolingual() const { return source_vocabulary.size == 0 && frame_width == 0; }
  // Whether there is only one vocabulary.
  bool shares_vocabulary() const {
    return source_vocabulary.size == 0 || source_vocabulary.file == target_vocabulary.file;
  }
};

// Identifies the samples of a corpus or of a part of it by their content, wherever the files are.
struct DataIdentity {
  int64_t samples = 0;  // 0: not known
  uint32_t crc32c = 0;
  bool known() const { return samples > 0; }
  bool operator==(const DataIdentity&) const = default;
};
// Identifies all samples, their form if it is not the usual one, and, if there are several corpora, their names, on
// which the order of training depends.
DataIdentity IdentityOf(const CorpusManifest& manifest);
// "79750 samples, checksum 0123abcd"
std::string Describe(const DataIdentity& identity);

std::string ManifestToJson(const CorpusManifest& manifest);
// Errors: DataLoss with `name` (the file, for messages), the field and a remedy.
absl::StatusOr<CorpusManifest> ManifestFromJson(const std::string& json, const std::string& name);

}  // namespace hadal
