#include "pipeline/options/decoder_options.h"

#include <algorithm>
#include <cmath>
#include "runtime/status_macros.h"

namespace hadal {

absl::Status ValidateBeamOptions(const BeamOptions& options) {
  const auto refuse = [](const char* field, auto value, const char* range) {
    return InvalidArgumentError(field, " = ", value, " is outside ", range);
  };
  if (options.beam < 1 || options.beam > 64) return refuse("beam", options.beam, "1 … 64");
  if (!(options.length_penalty >= 0 && options.length_penalty <= 10)) {
    return refuse("length penalty", options.length_penalty, "0 … 10");
  }
  if (!(options.max_length_a >= 0 && options.max_length_a <= 1e6)) {
    return refuse("max length a", options.max_length_a, "0 … 1e6");
  }
  if (!(options.max_length_b >= 0 && options.max_length_b <= 1e6)) {
    return refuse("max length b", options.max_length_b, "0 … 1e6");
  }
  if (options.min_length < 0) return refuse("min length", options.min_length, "0 and up");
  if (options.no_repeat_ngram < 0) return refuse("no-repeat n-gram", options.no_repeat_ngram, "0 (off) and up");
  if (!options.sampling) return absl::OkStatus();
  const DrawOptions& sampling = *options.sampling;
  if (!(sampling.temperature > 0 && std::isfinite(sampling.temperature))) {
    return refuse("temperature", sampling.temperature, "the finite numbers above 0; --top-k 1 is greedy search");
  }
  if (sampling.top_k < 0) return refuse("top-k", sampling.top_k, "0 (all tokens) and up");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return refuse("top-p", sampling.top_p, "0 < p ≤ 1");
  return absl::OkStatus();
}

int64_t LongestTranslation(const BeamOptions& options, int64_t source_rows, int64_t max_positions) {
  const auto wanted =
      static_cast<int64_t>(options.max_length_a * static_cast<double>(source_rows) + options.max_length_b);
  return std::max<int64_t>(1, std::min(wanted, max_positions - 1));
}

}  // namespace hadal
