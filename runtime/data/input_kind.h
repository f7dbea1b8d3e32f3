// What a model's inputs are besides token ids: where language tags stand, and how the features of speech were made.
//
// Corpora and checkpoints keep it, and whoever gives text or features to a model compares, since a model reads any
// numbers of the right width. A field that is empty or 0 was not recorded (by an older version), and is not compared.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace hadal {

struct InputKind {
  std::string tags;         // the preset of language_tags.h: "none", "deepnet" or "m2m100"
  int32_t frame_width = 0;  // speech: filters of a frame; 0: text
  int32_t sample_rate = 0;  // Hz
  std::string cmvn;         // "utterance" or "none"
  bool operator==(const InputKind&) const = default;
};

// "80 filters at 16000 Hz, cmvn utterance"; of a kind without features: "tokens".
std::string DescribeFeatures(const InputKind& kind);

// Errors: InvalidArgument if the features of `given` differ from those that the model was trained on. `name`: of
// `given`, for the message.
absl::Status CheckFeatureKind(const InputKind& model, const InputKind& given, const std::string& name);
// The same of language tags.
absl::Status CheckTags(const InputKind& model, const std::string& given, const std::string& name);

}  // namespace hadal
