#include "tests/torture/supervised_run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/run_directory.h"

namespace hadal::torture {
namespace {

constexpr char kConfig[] = R"(
model { encoder_layers: 2 decoder_layers: 2 d_model: 16 d_ff: 32 heads: 2 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 2 source_tokens: 64 target_tokens: 64 }
pipeline { threads: 1 }
learning_rate { peak: 1e-3 warmup_updates: 50 }
stop { steps: 1000000000 }
)";

int ExitCode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// The words of a process's command line; none when it has ended.
std::vector<std::string> CommandLine(const std::filesystem::path& process) {
  std::ifstream file(process / "cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// The number that follows `key` in a line of JSON; -1: none.
int64_t NumberAfter(const std::string& line, const std::string& key) {
  const size_t at = line.find(key);
  return at == std::string::npos ? -1 : std::strtoll(line.c_str() + at + key.size(), nullptr, 10);
}

}  // namespace

int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

bool PrepareSmallRun(const std::string& hadal, const std::string& work) {
  std::ofstream(work + "/small.textproto") << kConfig;
  return Shell(absl::StrCat("cd ", work, " && (", hadal, " make-corpus --out text --pairs 300 --valid 20 --test 10 && ",
                            hadal, " prepare --train text/train.en text/train.de --valid text/valid.en ",
                            "text/valid.de --out data --vocab-size 300) > prepare.log 2>&1")) == 0;
}

std::vector<std::string> TrainWords(const std::string& work, int save_every, int64_t steps) {
  return {"train", work + "/small.textproto",
          "--set", "data.train=" + work + "/data/train",
          "--set", absl::StrCat("checkpoint.every_steps=", save_every),
          "--set", absl::StrCat("stop.steps=", steps)};
}

bool SameCheckpoint(const std::string& hadal, const std::string& run, const std::string& other, int64_t step) {
  return Shell(absl::StrCat(hadal, " checkpoint diff ", CheckpointDirectory(run, step), " ",
                            CheckpointDirectory(other, step))) == 0;
}

bool IsSaving(const std::string& run_directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(CheckpointsDirectory(run_directory), error)) {
    if (entry.path().filename().string().find(".tmp.") != std::string::npos) return true;
  }
  return false;
}

RunFiles Inspect(const std::string& run_directory) {
  RunFiles files;
  std::ifstream metrics(run_directory + "/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    if (metrics.eof()) break;  // no newline: not written to its end
    const int64_t first_step = line.starts_with("{\"event\":\"run\"") ? NumberAfter(line, "\"first_step\":") : -1;
    const int64_t step = line.starts_with("{\"event\":\"step\"") ? NumberAfter(line, "\"step\":") : -1;
    if (first_step >= 1) {
      files.resumed_after = first_step - 1;
      ++files.starts;
    }
    if (step < 0) continue;
    ++files.steps_done;
    if (step != files.steps_done) files.steps_in_order = false;
  }
  files.checkpoint = ReadCheckpointPointer(run_directory, CheckpointPointer::kLatest).value_or(0);
  files.saving = IsSaving(run_directory);
  return files;
}

SupervisedRun::SupervisedRun(const std::string& hadal, const std::string& launcher,
                             const std::vector<std::string>& train, const std::string& run_directory,
                             const std::string& log)
    : hadal_(hadal), run_directory_(run_directory) {
  std::vector<std::string> words = {hadal, "supervise", "--tries", "1000", "--back-off", "0", "--"};
  std::istringstream prefix(launcher);
  words.insert(words.end(), std::istream_iterator<std::string>(prefix), {});
  words.push_back(hadal);
  words.insert(words.end(), train.begin(), train.end());
  words.insert(words.end(), {"--run-dir", run_directory});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  supervisor_ = fork();
  if (supervisor_ != 0) return;
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  execv(arguments[0], arguments.data());
  _exit(127);
}

std::vector<pid_t> SupervisedRun::Ranks() const {
  std::vector<pid_t> ranks;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    const std::vector<std::string> words = CommandLine(entry.path());
    if (words.size() > 2 && words[0] == hadal_ && words[1] == "train" && words.back() == run_directory_) {
      ranks.push_back(static_cast<pid_t>(std::stol(name)));
    }
  }
  return ranks;
}

int SupervisedRun::Stop() {
  kill(supervisor_, SIGINT);
  int status = 0;
  waitpid(supervisor_, &status, 0);
  return ExitCode(status);
}

std::optional<int> SupervisedRun::Poll() {
  int status = 0;
  if (!code_.has_value() && waitpid(supervisor_, &status, WNOHANG) == supervisor_) code_ = ExitCode(status);
  return code_;
}

}  // namespace hadal::torture
