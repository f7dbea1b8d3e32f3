#include "tools/translate/translation_output.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "runtime/locked_file.h"
#include "runtime/status_macros.h"
#include "tools/output/staged_output.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string TextOf(const Hypothesis& hypothesis, const OutputForm& form, const Vocabulary& vocabulary) {
  std::span<const int32_t> tokens = hypothesis.tokens;
  tokens = tokens.subspan(std::min(form.hidden_tokens, tokens.size()));
  return form.decode ? form.decode(tokens) : vocabulary.Decode(tokens, form.joining);
}

std::string FormatJson(const OutputForm& form, const Vocabulary& vocabulary, int64_t number, std::string_view input,
                       std::span<const Hypothesis> hypotheses) {
  OrderedJson line{{"line", number}, {form.input_name, input}, {"hypotheses", OrderedJson::array()}};
  for (const Hypothesis& hypothesis : hypotheses) {
    OrderedJson tokens = OrderedJson::array();
    for (const int32_t token : hypothesis.tokens) tokens.push_back(vocabulary.Token(token));
    tokens.push_back(vocabulary.Token(form.end_token));
    line["hypotheses"].push_back({{"text", TextOf(hypothesis, form, vocabulary)},
                                  {"tokens", std::move(tokens)},
                                  {"score", hypothesis.score},
                                  {"log_probabilities", hypothesis.token_log_probabilities}});
  }
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// Whether `path` leads to a device, a pipe or an open file of a process, which is written as it is.
bool IsStream(const std::string& path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  std::filesystem::path at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    const std::filesystem::path directory = std::filesystem::canonical(DirectoryName(at.native()), error);
    if (absl::StartsWith(directory.native(), "/proc/")) return true;
    if (!std::filesystem::is_symlink(at, error)) break;
    at = directory / std::filesystem::read_symlink(at, error);
  }
  const std::filesystem::file_status status = std::filesystem::status(at, error);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
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

OutputFile::~OutputFile() {
  if (!stream_.is_open() || is_stream_) return;
  stream_.close();
  std::error_code error;
  if (std::filesystem::is_empty(written_, error)) std::filesystem::remove(written_, error);
}

absl::Status OutputFile::Open(const std::string& path, const std::vector<std::string>& inputs, bool overwrite) {
  if (path.empty()) return absl::OkStatus();
  path_ = written_ = path;
  is_stream_ = IsStream(path);
  if (!is_stream_) {
    written_ = path + ".partial";
    const auto any = [overwrite](std::string_view) { return overwrite; };
    for (const std::string& file : {path_, written_}) {
      HADAL_RETURN_IF_ERROR(CheckOutput(
          file, {.inputs = inputs, .is_own = any, .remedy = "choose another --out, or replace it with --overwrite"}));
    }
    HADAL_ASSIGN_OR_RETURN(lock_, OpenLocked(written_));
  }
  stream_.open(written_, std::ios::binary | (is_stream_ ? std::ios::app : std::ios::trunc));
  return stream_ ? absl::OkStatus() : CreationError(errno, written_);
}

absl::Status OutputFile::Flush() {
  if (stream().flush()) return absl::OkStatus();
  return ResourceExhaustedError(stream_.is_open() ? path_ : "standard output", ": writing failed; is the disk full?");
}

absl::Status OutputFile::Finish() {
  if (!stream_.is_open()) return absl::OkStatus();
  stream_.close();
  if (!stream_) return ResourceExhaustedError(path_, ": writing failed; is the disk full?");
  const FileDescriptor lock = std::move(lock_);
  return is_stream_ ? absl::OkStatus() : RenamePath(written_, path_);
}

}  // namespace hadal
