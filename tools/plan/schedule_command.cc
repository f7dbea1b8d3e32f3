#include "tools/plan/schedule_command.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "pipeline/schedule/schedule_check.h"
#include "pipeline/schedule/schedule_print.h"
#include "pipeline/schedule/schedule_replay.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

constexpr size_t kMostProgramLineBytes =
    4096;  // comments included; another kind of file is refused before it is searched

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

constexpr int64_t kMostProgramBytes = int64_t{1} << 28;

// Looks at the first line before it reads the rest: a large file that is no program is refused at once.
absl::StatusOr<std::string> ReadProgram(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path));
  HADAL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(file, path));
  std::string begin(static_cast<size_t>(std::min<int64_t>(bytes, kMostProgramLineBytes + 1)), '\0');
  HADAL_RETURN_IF_ERROR(ReadAt(file, 0, std::ssize(begin), begin.data(), path));
  if (begin.size() > kMostProgramLineBytes && begin.find('\n') == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":1: a line may have ", kMostProgramLineBytes, " bytes"));
  }
  return ReadWhole(file, path, kMostProgramBytes);
}

absl::StatusOr<std::vector<RankProgram>> ProgramsOf(const ScheduleCommandOptions& options) {
  if (!options.program.empty()) {
    HADAL_ASSIGN_OR_RETURN(const std::string text, ReadProgram(options.program));
    return ScheduleFromText(text, options.program, options.shape.stages);
  }
  return options.forward_only ? MakeForwardSchedules(options.shape) : MakeSchedules(options.kind, options.shape);
}

std::string ShapeText(const ScheduleCommandOptions& options) {
  const ScheduleShape& shape = options.shape;
  return absl::StrFormat("%s, %d stage(s), %d chunk(s) per rank, %d micro-batch(es)",
                         options.program.empty() ? ToString(options.kind) : options.program, shape.stages, shape.chunks,
                         shape.micro_batches);
}

std::string PeakLiveText(const ScheduleReport& report) {
  std::string text = "micro-batches live at once, by rank:";
  for (size_t rank = 0; rank < report.peak_live.size(); ++rank) {
    absl::StrAppend(&text, " ", report.peak_live_of_rank[rank]);
    if (report.peak_live[rank].size() > 1) {
      absl::StrAppend(&text, " (chunks ", absl::StrJoin(report.peak_live[rank], ", "), ")");
    }
  }
  text += "\n";
  if (std::ranges::any_of(report.peak_pending, [](int peak) { return peak > 0; })) {
    absl::StrAppend(&text, "weight halves pending at once, by rank: ", absl::StrJoin(report.peak_pending, " "), "\n");
  }
  return text;
}

std::shared_ptr<ScheduleCommandOptions> AddShapeFlags(Command command, std::shared_ptr<std::string>& kind) {
  auto options = std::make_shared<ScheduleCommandOptions>();
  kind = std::make_shared<std::string>("1f1b");
  constexpr int kMost = 1 << 16;
  command.AddOption("--kind", *kind, "Schedule").OneOf(AllScheduleNames()).ShowDefault();
  command.AddOption("--stages", options->shape.stages, "Ranks of the pipeline").InRange(1, kMost).ShowDefault();
  command.AddOption("--chunks", options->shape.chunks, "Chunks per rank").InRange(1, kMost).ShowDefault();
  command.AddOption("--micro-batches", options->shape.micro_batches, "Micro-batches per step")
      .InRange(1, kMost)
      .ShowDefault();
  command.AddOption("--outstanding-sends", options->outstanding_sends, "Messages that a channel may have in flight")
      .InRange(1, kMost)
      .ShowDefault();
  command.AddFlag("--free-links", options->shape.free_links, "Messages take no time: the schedule of a run on CPUs");
  command.AddFlag("--forward-only", options->forward_only, "Use the forward-only schedule of a validation");
  command.AddOption("--program", options->program, "A file of instructions instead of --kind");
  return options;
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
    if (raw.size() > kMostProgramLineBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", number, ": ", raw.size(), " bytes; a line may have ", kMostProgramLineBytes));
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

absl::StatusOr<std::string> PrintSchedule(const ScheduleCommandOptions& options) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<RankProgram> programs, ProgramsOf(options));
  if (options.text) return ScheduleToText(programs);
  HADAL_ASSIGN_OR_RETURN(const std::string drawing, DrawSchedule(programs, options.shape,
                                                                 {.backward_units = options.backward_units,
                                                                  .outstanding_sends = options.outstanding_sends,
                                                                  .forward_only = options.forward_only,
                                                                  .max_columns = options.columns}));
  HADAL_ASSIGN_OR_RETURN(const ScheduleReport report, CheckSchedule(programs, options.shape,
                                                                    {.outstanding_sends = options.outstanding_sends,
                                                                     .forward_only = options.forward_only}));
  std::string text = absl::StrCat(ShapeText(options), "\n", drawing, PeakLiveText(report));
  const std::optional<double> bubble = options.forward_only || !options.program.empty()
                                           ? std::nullopt
                                           : AnalyticBubbleFraction(options.kind, options.shape);
  if (bubble) absl::StrAppend(&text, absl::StrFormat("bubble by the formula: %.1f%% of the step\n", 100 * *bubble));
  return text;
}

absl::StatusOr<std::string> CheckScheduleCommand(const ScheduleCommandOptions& options) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<RankProgram> programs, ProgramsOf(options));
  std::string text = absl::StrCat(ShapeText(options), "\n");
  size_t instructions = 0;
  for (const RankProgram& program : programs) instructions += program.size();
  ScheduleReport report;
  std::vector<int> sends{1};
  if (options.outstanding_sends != 1) sends.push_back(options.outstanding_sends);
  for (const int outstanding : sends) {
    HADAL_ASSIGN_OR_RETURN(report,
                           CheckSchedule(programs, options.shape,
                                         {.outstanding_sends = outstanding, .forward_only = options.forward_only}));
    absl::StrAppend(&text, "sound with ", outstanding, outstanding == 1 ? " outstanding send" : " outstanding sends",
                    " per channel: all ", instructions, " instructions run, no deadlock\n");
  }
  return text + PeakLiveText(report);
}

void AddScheduleCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("schedule", "Draw a pipeline's schedule, or prove it free of deadlock");
  command.RequireCommand();
  std::shared_ptr<std::string> kind;

  Command print = command.AddCommand("print", "Draw the schedule, one row per rank");
  const std::shared_ptr<ScheduleCommandOptions> drawn = AddShapeFlags(print, kind);
  print.AddFlag("--text", drawn->text, "Print its instructions, one per line");
  print.AddOption("--columns", drawn->columns, "Units of time to draw").InRange(2, 1 << 16).ShowDefault();
  print.AddOption("--backward-units", drawn->backward_units, "A backward takes as long as this many forwards")
      .InRange(1, 100)
      .ShowDefault();
  print.Runs([drawn, kind, &exit_code] {
    drawn->kind = *ParseScheduleKind(*kind);
    exit_code = EndTool("schedule print", PrintSchedule(*drawn));
  });

  Command check = command.AddCommand("check", "Prove the schedule sound, or print the error");
  const std::shared_ptr<ScheduleCommandOptions> checked = AddShapeFlags(check, kind);
  check.Runs([checked, kind, &exit_code] {
    checked->kind = *ParseScheduleKind(*kind);
    exit_code = EndTool("schedule check", CheckScheduleCommand(*checked));
  });
}

}  // namespace hadal
