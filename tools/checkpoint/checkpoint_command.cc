#include "tools/checkpoint/checkpoint_command.h"

#include <functional>
#include <iostream>
#include <memory>

#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/commands.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

constexpr int kMostSelections = 100;   // in a run that removes checkpoints as fast as they are selected
constexpr int kMostNamed = 1'000'000;  // checkpoints or tensors: no limit in practice

// Runs print(out) and returns the exit code of `hadal checkpoint SUBCOMMAND`. `out` passes to standard output what is
// safe on a terminal: a manifest may hold anything.
int Report(const std::string& subcommand, const std::function<absl::Status(std::ostream&)>& print) {
  PrintableBuffer printable(std::cout);
  std::ostream out(&printable);
  const absl::Status status = print(out);
  out << std::flush;
  return EndTool("checkpoint " + subcommand, status);
}

int Diff(const std::string& a, const std::string& b, const CheckpointDiffOptions& options) {
  bool identical = false;
  const int code = Report("diff", [&](std::ostream& out) -> absl::Status {
    const absl::StatusOr<bool> same = DiffCheckpoints(a, b, options, out);
    if (!same.ok()) return AdviseAnotherCheckpoint(same.status());
    identical = *same;
    return absl::OkStatus();
  });
  return code == kToolDone && !identical ? kToolError : code;
}

absl::Status Average(const std::vector<std::string>& inputs, const CheckpointSelection& selection,
                     const std::string& directory, std::ostream& out) {
  const bool of_a_run = selection.last > 0 || selection.best > 0;
  if (of_a_run && inputs.size() != 1) {
    return InvalidArgumentError("--last and --best need one run directory; to average listed checkpoints, omit them");
  }
  if (!of_a_run && PathExists(CheckpointsDirectory(inputs.front()))) {
    return InvalidArgumentError(inputs.front(),
                                " is a run directory; average its newest with --last N, or its best with --best N");
  }
  if (!of_a_run) return AdviseAnotherCheckpoint(AverageCheckpoints(inputs, directory, out));
  for (int tries = 1;; ++tries) {
    const absl::StatusOr<std::vector<std::string>> selected = SelectCheckpoints(inputs.front(), selection, out);
    const absl::Status status = selected.ok() ? AverageCheckpoints(*selected, directory, out) : selected.status();
    // A run in progress may have removed one meanwhile.
    if (!absl::IsNotFound(status) || tries == kMostSelections) return AdviseAnotherCheckpoint(status);
  }
}

void AddListCommands(Command command, int& exit_code) {
  auto path = std::make_shared<std::string>();
  auto parameters = std::make_shared<bool>(false);
  Command list = command.AddCommand("ls", "List a run's checkpoints, or the contents of one");
  list.AddOption("RUN_OR_DIR", *path, "Run or checkpoint directory").Required();
  list.AddFlag("--parameters", *parameters,
               "Also list names and shapes of the parameters; of a run: of its newest checkpoint");
  list.Runs([=, &exit_code] {
    exit_code = Report("ls", [&](std::ostream& out) { return PrintCheckpoints(*path, *parameters, out); });
  });

  auto verified = std::make_shared<std::string>();
  Command verify = command.AddCommand("verify", "Read every byte and compare every checksum");
  verify.AddOption("RUN_OR_DIR", *verified, "Checkpoint directory, or a run for all of its checkpoints").Required();
  verify.Runs([=, &exit_code] {
    exit_code = Report("verify", [&](std::ostream& out) { return VerifyCheckpoints(*verified, out); });
  });
}

void AddDiffCommand(Command command, int& exit_code) {
  auto a = std::make_shared<std::string>();
  auto b = std::make_shared<std::string>();
  auto options = std::make_shared<CheckpointDiffOptions>();
  Command diff = command.AddCommand("diff", "Compare weights and moments bit by bit; exit code 1 if they differ");
  diff.AddOption("A", *a, "Run or checkpoint directory").Required();
  diff.AddOption("B", *b, "Run or checkpoint directory").Required();
  diff.AddFlag("--weights-only", options->weights_only, "Ignore moments");
  diff.AddOption("--lines", options->lines, "Tensors to list, the most different first; 0: all")
      .ShowDefault()
      .InRange(0, kMostNamed);
  diff.Runs([=, &exit_code] { exit_code = Diff(*a, *b, *options); });
}

void AddExportCommand(Command command, int& exit_code) {
  auto options = std::make_shared<CheckpointExportOptions>();
  Command exporting =
      command.AddCommand("export", "Write whole weights as one safetensors file, or for another program");
  AddCheckpointOption(exporting, options->checkpoint);
  exporting
      .AddOption("-o,--out", options->out,
                 "FILE.safetensors; settings and vocabularies are written next to it. With --format: a new folder")
      .Required();
  const CommandOption format =
      exporting.AddOption("--format", options->format, "Another program's format; needs Python 3")
          .OneOf({"huggingface", "ctranslate2", "fairseq"});
  exporting
      .AddOption("--quantization", options->quantization, "Of ctranslate2's weights: int8, int16, float16, bfloat16")
      .Needs(format);
  exporting.AddFlag("--force", options->force, "Replace FILE and its .json").Excludes(format);
  exporting.AddFlag("--allow-nonfinite", options->allow_nonfinite, "Accept weights that are NaN or infinite");
  exporting.Runs([=, &exit_code] {
    exit_code =
        Report("export", [&](std::ostream& out) { return AdviseAnotherCheckpoint(ExportCheckpoint(*options, out)); });
  });
}

void AddImportCommand(Command command, int& exit_code) {
  auto options = std::make_shared<CheckpointImportOptions>();
  Command importing = command.AddCommand("import", "Make a checkpoint of another program's model");
  importing
      .AddOption(
          "SOURCE", options->source,
          "FILE.safetensors as export writes it, a folder of Hugging Face transformers, or fairseq's checkpoint.pt")
      .Required();
  importing.AddOption("-o,--out", options->out, "Checkpoint directory to write").Required();
  importing
      .AddOption("--dictionary", options->dictionaries,
                 "Fairseq's dict.txt; given twice: the source's, then the target's")
      .OneValueEach();
  importing.AddFlag("--allow-nonfinite", options->allow_nonfinite, "Accept weights that are NaN or infinite");
  importing.Runs([=, &exit_code] {
    exit_code = Report("import", [&](std::ostream& out) { return ImportCheckpoint(*options, out); });
  });
}

void AddAverageCommand(Command command, int& exit_code) {
  auto inputs = std::make_shared<std::vector<std::string>>();
  auto selection = std::make_shared<CheckpointSelection>();
  auto directory = std::make_shared<std::string>();
  Command average = command.AddCommand("average", "Average the weights of several checkpoints");
  average.AddOption("DIR", *inputs, "Checkpoint directories, or one run directory with --last or --best").Required();
  const CommandOption last =
      average.AddOption("--last", selection->last, "The newest N of the run").InRange(1, kMostNamed);
  average
      .AddOption("--best", selection->best,
                 "The run's N best by validation: with the lowest nll, or the kept ones of another validation.metric")
      .InRange(1, kMostNamed)
      .Excludes(last);
  average.AddOption("-o,--out", *directory, "Directory to write").Required();
  average.Runs([=, &exit_code] {
    exit_code = Report("average", [&](std::ostream& out) { return Average(*inputs, *selection, *directory, out); });
  });
}

}  // namespace

void AddCheckpointOption(Command command, std::string& checkpoint) {
  command.AddOption("RUN_OR_DIR", checkpoint, "Checkpoint, or run directory (its best checkpoint, else its newest)")
      .Required();
}

void AddCheckpointCommand(Command app, int& exit_code) {
  Command command =
      app.AddCommand("checkpoint", "List (ls), verify, compare (diff), export, import and average checkpoints");
  command.RequireCommand();
  AddListCommands(command, exit_code);
  AddDiffCommand(command, exit_code);
  AddExportCommand(command, exit_code);
  AddImportCommand(command, exit_code);
  AddAverageCommand(command, exit_code);
}

}  // namespace hadal
