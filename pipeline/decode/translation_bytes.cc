#include "pipeline/decode/translation_bytes.h"

#include <cstring>

#include "absl/status/status.h"

namespace hadal {
namespace {

template <typename T>
void Append(std::span<const T> values, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

template <typename T>
void AppendOne(const T& value, std::string& bytes) {
  Append(std::span<const T>(&value, 1), bytes);
}

template <typename T>
bool Take(std::string_view& bytes, std::span<T> values) {
  if (bytes.size() < values.size_bytes()) return false;
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size_bytes());
  bytes.remove_prefix(values.size_bytes());
  return true;
}

// A count of things of at least `least_bytes` each.
bool TakeCount(std::string_view& bytes, size_t least_bytes, size_t& count) {
  uint64_t value = 0;
  if (!Take(bytes, std::span(&value, 1)) || value > bytes.size() / least_bytes) return false;
  count = value;
  return true;
}

bool TakeHypothesis(std::string_view& bytes, Hypothesis& hypothesis) {
  size_t tokens = 0;
  if (!TakeCount(bytes, sizeof(int32_t), tokens)) return false;
  hypothesis.tokens.resize(tokens);
  hypothesis.token_log_probabilities.resize(tokens + 1);
  return Take(bytes, std::span(hypothesis.tokens)) && Take(bytes, std::span(hypothesis.token_log_probabilities)) &&
         Take(bytes, std::span(&hypothesis.log_probability, 1)) && Take(bytes, std::span(&hypothesis.score, 1));
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
  AppendOne(uint64_t{translations.size()}, bytes);
  for (const std::vector<Hypothesis>& translation : translations) {
    AppendOne(uint64_t{translation.size()}, bytes);
    for (const Hypothesis& hypothesis : translation) {
      AppendOne(uint64_t{hypothesis.tokens.size()}, bytes);
      Append(std::span<const int32_t>(hypothesis.tokens), bytes);
      Append(std::span<const float>(hypothesis.token_log_probabilities), bytes);
      AppendOne(hypothesis.log_probability, bytes);
      AppendOne(hypothesis.score, bytes);
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
