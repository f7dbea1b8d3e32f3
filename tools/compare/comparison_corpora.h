// ComparisonCorpora checks and measures the corpora of a grid's runs before they start. It opens each corpus once,
// however many cells use it.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "configs/run.pb.h"
#include "runtime/data/corpus_manifest.h"

namespace hadal {

class ComparisonCorpora {
 public:
  // OK if a training run of this config could start.
  // Errors: those of the config and of opening the training corpus; InvalidArgument if the model does not fit the
  // corpus's vocabulary.
  absl::Status Check(const config::RunConfig& config);
  // UnigramLevel (tools/compare/comparison_result.h) of the config's corpora.
  absl::StatusOr<std::optional<double>> Unigram(const config::RunConfig& config);

 private:
  std::map<std::string, CorpusManifest> manifests_;  // by corpus
  // By all that decides which samples are validated.
  std::map<std::tuple<std::string, std::string, int32_t, bool, int32_t, int32_t, int32_t>, std::optional<double>>
      levels_;
};

}  // namespace hadal
