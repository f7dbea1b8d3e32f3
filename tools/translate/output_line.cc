#include "tools/translate/output_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string TextOf(const Hypothesis& hypothesis, const OutputForm& form, const Vocabulary& vocabulary) {
  const std::span<const int32_t> tokens = hypothesis.tokens;
  return vocabulary.Decode(tokens.subspan(std::min(form.hidden_tokens, tokens.size())), form.joining);
}

std::string FormatJson(const OutputForm& form, const Vocabulary& vocabulary, int64_t number, std::string_view input,
                       std::span<const Hypothesis> hypotheses) {
  OrderedJson line{{"line", number}, {form.input_name, input}, {"hypotheses", OrderedJson::array()}};
  for (const Hypothesis& hypothesis : hypotheses) {
    OrderedJson tokens = OrderedJson::array();
    for (const int32_t token : hypothesis.tokens) tokens.push_back(vocabulary.Token(token));
    tokens.push_back(vocabulary.Token(kEosToken));
    line["hypotheses"].push_back({{"text", TextOf(hypothesis, form, vocabulary)},
                                  {"tokens", std::move(tokens)},
                                  {"score", hypothesis.score},
                                  {"log_probabilities", hypothesis.token_log_probabilities}});
  }
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

std::string FormatOutput(const OutputForm& form, const Vocabulary& vocabulary, int64_t number, std::string_view input,
                         std::span<const Hypothesis> hypotheses) {
  hypotheses = hypotheses.first(std::min<size_t>(hypotheses.size(), form.nbest));
  if (form.json) return FormatJson(form, vocabulary, number, input, hypotheses);
  const std::string prefix = form.nbest > 1 ? absl::StrCat(number, "\t") : "";
  if (hypotheses.empty()) return absl::StrCat(prefix, form.scores ? "\t" : "", "\n");  // an empty line has no score
  std::string text;
  for (const Hypothesis& hypothesis : hypotheses) {
    absl::StrAppend(&text, prefix, form.scores ? absl::StrFormat("%.6f\t", hypothesis.score) : "",
                    absl::StrReplaceAll(TextOf(hypothesis, form, vocabulary), {{"\n", " "}, {"\r", " "}}), "\n");
  }
  return text;
}

}  // namespace hadal
