#include "pipeline/decode/decode_command.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/bytes.h"
#include "runtime/check.h"

namespace hadal {
namespace {

constexpr int64_t kHeader = 4;  // kind, lane, count, source rows
constexpr int64_t kRowIntegers = sizeof(StepRow) / sizeof(int32_t);
static_assert(sizeof(StepRow) == 5 * sizeof(int32_t));

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

int64_t DecodeCommand::MostIntegers(const DecodeCapacity& capacity) {
  return kHeader + std::max(capacity.sentences + 1 + capacity.source_rows, kRowIntegers * capacity.rows);
}

int64_t DecodeCommand::Write(std::span<int32_t> out) const {
  const bool encode = kind == Kind::kEncode;
  const int64_t count = static_cast<int64_t>(encode ? source_offsets.size() : rows.size());
  const int64_t integers = kHeader + (encode ? count + static_cast<int64_t>(source.size()) : kRowIntegers * count);
  HADAL_CHECK_LE(integers, static_cast<int64_t>(out.size()));
  const int32_t header[kHeader] = {static_cast<int32_t>(kind), lane, static_cast<int32_t>(count),
                                   static_cast<int32_t>(source.size())};
  int32_t* at = std::copy(header, header + kHeader, out.data());
  if (encode) {
    at = std::copy(source_offsets.begin(), source_offsets.end(), at);
    std::copy(source.begin(), source.end(), at);
  } else if (count > 0) {
    std::memcpy(at, rows.data(), count * sizeof(StepRow));
  }
  return integers;
}

absl::Status DecodeCommand::Read(std::span<const int32_t> in) {
  const auto size = static_cast<int64_t>(in.size());
  const bool has_header =
      size >= kHeader && in[0] >= 0 && in[0] <= static_cast<int32_t>(Kind::kEnd) && in[2] >= 0 && in[3] >= 0;
  const int64_t count = has_header ? in[2] : 0;
  const bool encode = has_header && in[0] == static_cast<int32_t>(Kind::kEncode);
  if (!has_header || size != kHeader + (encode ? count + in[3] : kRowIntegers * count)) {
    return absl::InternalError(
        absl::StrCat("a decode command of ", size, " integers is damaged; start every rank with the same binary"));
  }
  kind = static_cast<Kind>(in[0]);
  lane = in[1];
  const int32_t* const body = in.data() + kHeader;
  source_offsets.clear(), source.clear(), rows.clear();
  if (encode) {
    source_offsets.assign(body, body + count);
    source.assign(body + count, body + count + in[3]);
  } else if (count > 0) {
    rows.resize(count);
    std::memcpy(static_cast<void*>(rows.data()), body, count * sizeof(StepRow));
  }
  return absl::OkStatus();
}

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
