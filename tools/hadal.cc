// hadal: one binary, one table of subcommands. Each registers itself with the command line; the callback of the chosen
// one does the work and stores the exit code.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launch/exit_code.h"
#include "launch/signals.h"
#include "launch/standard_streams.h"
#include "launch/task_launcher.h"
#include "runtime/clock.h"
#include "runtime/thrown_error.h"
#include "tools/build_info.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/commit.h"  // generated
#include "tools/config/nearest_name.h"
#include "tools/python_child.h"

namespace {

using AddCommand = void (*)(hadal::Command app, int& exit_code);

// Commands that are pyhadal's alone, with their options and their help, and what `hadal --help` says of them. The last
// one is a subcommand of `config`, which registers it.
constexpr std::pair<const char*, const char*> kOfPython[] = {
    {"make-corpus", "Write German number words and their English translations"},
    {"curve", "Draw a metric of one or more runs, as text or as a picture"},
    {"config from-fairseq", nullptr}};

template <int number>
void AddOfPython(hadal::Command app, int&) {
  app.AddCommand(kOfPython[number].first, kOfPython[number].second);
}

// Runs the command of a command line if it is pyhadal's, and returns its exit code.
std::optional<int> RunOfPython(const std::vector<std::string>& words) {
  for (const auto& [name, description] : kOfPython) {
    const std::vector<std::string> wanted = absl::StrSplit(name, ' ');
    if (words.size() < wanted.size() || !std::equal(wanted.begin(), wanted.end(), words.begin())) continue;
    return hadal::RunPyhadal(name, {words.begin() + std::ssize(wanted), words.end()});
  }
  return std::nullopt;
}

// In the order a newcomer needs them.
constexpr AddCommand kCommands[] = {
    AddOfPython<0>,              // number words, for a first run
    hadal::AddPrepareCommand,    // raw text → vocabulary and token shards
    hadal::AddPlanCommand,       // stages, memory and bubble before a run
    hadal::AddTrainCommand,      // the main job
    hadal::AddCompareCommand,    // a grid of runs and one report
    hadal::AddSuperviseCommand,  // Ctrl-C saves, a crash restarts
    hadal::AddSweepCommand,      // a list of layouts and how they scale
    hadal::AddTranslateCommand,  // beam search, or samples
    hadal::AddSampleCommand,     // text of a language model
    hadal::AddEvaluateCommand,   // many test sets
    hadal::AddScoreCommand,      // log-probabilities of given pairs
    hadal::AddEmbedCommand,      // sentence vectors of an encoder alone
    hadal::AddBleuCommand,       // sacreBLEU's numbers, and jiwer's
    hadal::AddChrfCommand,
    hadal::AddWerCommand,
    hadal::AddConfigCommand,             // show, diff, explain
    hadal::AddConfigCellsCommand,        // what Python needs of the configs of a grid
    hadal::AddCheckpointCommand,         // ls, verify, diff, export, average
    hadal::AddInspectCommand,            // what a step trains on
    hadal::AddInspectSimilarityCommand,  // how alike a checkpoint's layers are
    AddOfPython<1>,                      // loss curves of runs
    hadal::AddSummaryCommand,            // runs, their time and their scaling, as text
    hadal::AddReportCommand,             // the same as one HTML file
    hadal::AddScheduleCommand,           // a schedule, drawn
    hadal::AddSimulateCommand,           // a schedule on ranks, costs and links given as options
    hadal::AddDoctorCommand,             // the ranks, links and files of a job, before it runs
    hadal::AddBenchCommand,              // how fast a step and each kernel are
};

// The end of a command line whose first word is no command: what to say.
std::string UnknownCommand(const std::vector<std::string>& names, const std::string& word) {
  if (word.starts_with('-') || std::find(names.begin(), names.end(), word) != names.end()) return "";
  const std::string nearest = hadal::NearestName(word, names);
  return absl::StrCat("hadal: there is no command \"", word, "\"",
                      nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"),
                      "\n`hadal --help` lists them all.\n");
}

// Bad usage is the same on every rank: the first one prints it. The others end later: mpirun then ends the rest.
int Refused(bool first) {
  if (!first) std::this_thread::sleep_for(std::chrono::seconds(1));
  return hadal::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  hadal::OpenStandardStreams();
  // The C library does not wait for a time below zero: watching threads would spin, and never let a run end.
  if (hadal::MonotonicSeconds() < 0) {
    std::fputs(
        "hadal: the monotonic clock is below zero; no kernel has such a clock: start without what shifts it "
        "(LD_PRELOAD, libfaketime)\n",
        stderr);
    return hadal::kExitError;
  }
  std::signal(SIGCHLD, SIG_DFL);  // if a parent ignored it, waitpid would report no end of a child
  hadal::IgnoreFileSizeSignal();
  hadal::ExplainLostPages();
  // A stop signal makes training save and stop. All other commands end at once.
  const bool trains = argc > 1 && std::string_view(argv[1]) == "train";
  if (trains) hadal::InstallStopSignals();
  hadal::CommandLine line("hadal", "hadal trains Transformers of extreme depth through a pipeline of ranks.");
  hadal::Command app = line.program();
  app.RequireCommand();
  app.AddAnswer(
      "--version", [] { return absl::StrCat("hadal ", hadal::Version(), "\n"); },
      "Display program version information and exit");
  app.AddAnswer(
      "--build-info", [] { return hadal::BuildInfo(HADAL_COMMIT); },
      "What is in this binary: versions, commit, compiler, CUDA");
  const bool first = hadal::IsFirstTask(std::getenv);
  std::ostream nowhere(nullptr);
  int exit_code = hadal::kExitDone;
  for (const AddCommand add : kCommands) add(app, exit_code);
  if (argc == 1) {
    std::fputs(line.Help().c_str(), stderr);
    return hadal::kExitUsage;
  }
  if (const std::string unknown = UnknownCommand(line.CommandNames(), argv[1]); !unknown.empty()) {
    (first ? std::cerr : nowhere) << unknown;
    return Refused(first);
  }
  if (const std::optional<int> code = RunOfPython({argv + 1, argv + argc})) return *code;
  try {
    const hadal::CommandLine::Outcome outcome = line.Run(argc, argv, first ? std::cerr : nowhere);
    if (outcome == hadal::CommandLine::Outcome::kAnswered) return hadal::kExitDone;
    if (outcome == hadal::CommandLine::Outcome::kRefused) return Refused(first);
  } catch (...) {
    std::fputs(absl::StrCat("hadal: ", hadal::ErrorOfException().message(), "\n").c_str(), stderr);
    return hadal::kExitError;
  }
  // A run prints only its progress; other commands print their result.
  if (exit_code == hadal::kExitDone && !trains && !hadal::StandardOutputIsWhole()) {
    std::fputs("hadal: writing to standard output failed; is the disk full?\n", stderr);
    return hadal::kExitError;
  }
  return exit_code;
}
