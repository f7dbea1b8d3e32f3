#include "pipeline/decode/translation_bytes.h"

#include "absl/status/status.h"
#include "runtime/bytes.h"

namespace hadal {
namespace {

bool TakeHypothesis(std::string_view& bytes, Hypothesis& hypothesis) {
  if (!TakeList(bytes, hypothesis.tokens)) return false;
  hypothesis.token_log_probabilities.resize(hypothesis.tokens.size() + 1);
  return TakeValues(bytes, std::span(hypothesis.token_log_probabilities)) &&
         TakeValue(bytes, hypothesis.log_probability) && TakeValue(bytes, hypothesis.score);
}

bool TakeAll(std::string_view bytes, std::vector<std::vector<Hypothesis>>& translations) {
  size_t count = 0;
  if (!TakeCount(bytes, sizeof(uint64_t), count)) return false;
  translations.resize(count);
  for (std::vector<Hypothesis>& translation : translations) {
    size_t hypotheses = 0;
    if (!TakeCount(bytes, sizeof(uint64_t), hypotheses)) return false;
    translation.resize(hypotheses);
    for (Hypothesis& hypothesis : translation) {
      if (!TakeHypothesis(bytes, hypothesis)) return false;
    }
  }
  return bytes.empty();
}

}  // namespace

std::string TranslationsToBytes(std::span<const std::vector<Hypothesis>> translations) {
  std::string bytes;
  AppendValue(uint64_t{translations.size()}, bytes);
  for (const std::vector<Hypothesis>& translation : translations) {
    AppendValue(uint64_t{translation.size()}, bytes);
    for (const Hypothesis& hypothesis : translation) {
      AppendList(hypothesis.tokens, bytes);
      bytes += AsBytes(hypothesis.token_log_probabilities);
      AppendValue(hypothesis.log_probability, bytes);
      AppendValue(hypothesis.score, bytes);
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<std::vector<Hypothesis>>> TranslationsFromBytes(std::string_view bytes) {
  std::vector<std::vector<Hypothesis>> translations;
  if (TakeAll(bytes, translations)) return translations;
  return absl::InternalError("translations arrived damaged; start every rank with the same binary");
}

}  // namespace hadal
