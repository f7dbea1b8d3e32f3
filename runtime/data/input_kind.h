// How the inputs of a model were made: the positions of language tags, and the features of speech.
//
// A corpus and a checkpoint store an InputKind. Before text or features go into a model, the two are compared, because
// a model accepts any numbers of the right width. frame_width is always compared (0: text). Another field that is empty
// or 0 was not recorded, by an older version, and is not compared.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace hadal {

struct InputKind {
  std::string tags;         // positions of language tags (language_tags.h): "none", "deepnet" or "m2m100"
  int32_t frame_width = 0;  // speech: filters of a frame; 0: text
  int32_t sample_rate = 0;  // Hz
  std::string cmvn;         // normalisation of mean and variance: "utterance" or "none"
  bool operator==(const InputKind&) const = default;
};

// Returns for example "80 filters at 16000 Hz, cmvn utterance"; "tokens" for text.
std::string DescribeFeatures(const InputKind& kind);

// Compares the features of `given` with those that the model was trained on. Errors: InvalidArgument if they differ.
// `name`: what `given` belongs to, for the message.
absl::Status CheckFeatureKind(const InputKind& model, const InputKind& given, const std::string& name);
// Compares the positions of language tags; `given` is as InputKind::tags. Errors and `name`: as CheckFeatureKind.
absl::Status CheckTags(const InputKind& model, const std::string& given, const std::string& name);

}  // namespace hadal
