#include "tools/plan/schedule_text.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr size_t kMostLineBytes = 4096;  // comments included; another kind of file is refused before it is searched

// ToString(Instruction) starts with the operation's name.
std::string OperationName(Operation operation) {
  const std::string text = ToString(Instruction{.operation = operation});
  return text.substr(0, text.find('('));
}

std::optional<Operation> ParseOperation(absl::string_view name) {
  for (int o = 0; o < kOperations; ++o) {
    if (OperationName(static_cast<Operation>(o)) == name) return static_cast<Operation>(o);
  }
  return std::nullopt;
}

struct Line {
  int rank = 0;
  Instruction instruction;
};

absl::StatusOr<Line> ParseLine(const std::vector<absl::string_view>& words, int stages) {
  Line line;
  if (!absl::SimpleAtoi(words[0], &line.rank) || line.rank < 0 || line.rank >= stages) {
    return absl::InvalidArgumentError(absl::StrCat("rank \"", words[0], "\" is not one of 0 … ", stages - 1));
  }
  const std::optional<Operation> operation = words.size() > 1 ? ParseOperation(words[1]) : std::nullopt;
  if (!operation) {
    return absl::InvalidArgumentError(absl::StrCat("no operation \"", words.size() > 1 ? words[1] : "",
                                                   "\"; `hadal schedule print --text` prints all"));
  }
  line.instruction.operation = *operation;
  if (IsTail(*operation)) return line;
  if (words.size() != 4 || !absl::SimpleAtoi(words[2], &line.instruction.chunk) ||
      !absl::SimpleAtoi(words[3], &line.instruction.micro_batch)) {
    return absl::InvalidArgumentError(absl::StrCat(words[1], " needs a chunk and a micro-batch"));
  }
  return line;
}

}  // namespace

std::string ScheduleToText(const std::vector<RankProgram>& programs) {
  std::string text;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    for (const Instruction& i : programs[rank]) {
      absl::StrAppend(&text, rank, " ", OperationName(i.operation));
      if (!IsTail(i.operation)) absl::StrAppend(&text, " ", i.chunk, " ", i.micro_batch);
      absl::StrAppend(&text, "\n");
    }
  }
  return text;
}

absl::StatusOr<std::vector<RankProgram>> ScheduleFromText(absl::string_view text, const std::string& name, int stages) {
  std::vector<RankProgram> programs(stages);
  int number = 0;
  for (absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++number;
    if (raw.size() > kMostLineBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", number, ": ", raw.size(), " bytes; a line may have ", kMostLineBytes));
    }
    const std::vector<absl::string_view> words =
        absl::StrSplit(raw.substr(0, raw.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const absl::StatusOr<Line> line = ParseLine(words, stages);
    if (!line.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ":", number, ": ", line.status().message()));
    programs[line->rank].push_back(line->instruction);
  }
  return programs;
}

}  // namespace hadal
