#include "tools/synthetic/synthetic_corpus.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/clock.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/output/human_units.h"
#include "tools/output/work_progress.h"
#include "tools/synthetic/synthetic_english.h"
#include "tools/synthetic/synthetic_german.h"
#include "tools/synthetic/synthetic_sampler.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

// One split's two files. They are written under other names and renamed when complete.
class SplitFiles {
 public:
  // `unique`: writes no sentence twice.
  SplitFiles(const std::string& directory, const std::string& name, int64_t wanted, bool unique)
      : english_(JoinPath(directory, name + ".en")),
        german_(JoinPath(directory, name + ".de")),
        wanted_(wanted),
        unique_(unique) {}

  absl::Status Open(bool overwrite) {
    if (wanted_ == 0) return absl::OkStatus();
    for (const std::string& path : {english_, german_}) {
      if (overwrite || !PathExists(path)) continue;
      return absl::AlreadyExistsError(
          absl::StrCat(path, " already exists; choose another --out, or replace it with --overwrite"));
    }
    english_out_.open(english_ + kPartial, std::ios::binary | std::ios::trunc);
    german_out_.open(german_ + kPartial, std::ios::binary | std::ios::trunc);
    return CheckWritten();
  }

  bool full() const { return written_ >= wanted_; }

  // Returns whether the pair was wanted.
  bool Add(const SyntheticPair& pair) {
    if (full() || (unique_ && !seen_.insert(pair.english).second)) return false;
    english_out_ << pair.english << '\n';
    german_out_ << pair.german << '\n';
    ++written_;
    return true;
  }

  absl::Status Finish() {
    if (wanted_ == 0) return absl::OkStatus();
    english_out_.close();
    german_out_.close();
    HADAL_RETURN_IF_ERROR(CheckWritten());
    HADAL_RETURN_IF_ERROR(RenamePath(english_ + kPartial, english_));
    return RenamePath(german_ + kPartial, german_);
  }

 private:
  static constexpr const char* kPartial = ".partial";

  absl::Status CheckWritten() const {
    if (english_out_ && german_out_) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("writing ", english_out_ ? german_ : english_,
                                               " failed; is the folder writable and the disk not full?"));
  }

  std::string english_, german_;
  int64_t wanted_;
  bool unique_;
  int64_t written_ = 0;
  std::ofstream english_out_, german_out_;
  std::unordered_set<std::string> seen_;
};

absl::Status CheckOptions(const GenerateOptions& options) {
  if (options.output.empty()) return absl::InvalidArgumentError("no output folder; give --out DIR");
  if (options.pairs < 1 || options.valid < 0 || options.test < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--pairs ", options.pairs, ", --valid ", options.valid, ", --test ",
                                                   options.test, ": at least 1 pair, and no negative sizes"));
  }
  return absl::OkStatus();
}

}  // namespace

SyntheticPair MakeSyntheticPair(uint64_t seed, uint64_t index) {
  const Sentence sentence = DrawSentence(seed, index);
  return {WriteEnglish(sentence), WriteGerman(sentence)};
}

SyntheticSplit SplitOf(const std::string& english) {
  switch (Crc32c(english.data(), english.size()) % 32) {
    case 0:
      return SyntheticSplit::kValid;
    case 1:
      return SyntheticSplit::kTest;
    default:
      return SyntheticSplit::kTrain;
  }
}

absl::Status RunGenerate(const GenerateOptions& options, std::ostream& out) {
  const Stopwatch watch;
  HADAL_RETURN_IF_ERROR(CheckOptions(options));
  HADAL_RETURN_IF_ERROR(MakeDirectories(options.output));
  // In the order of SyntheticSplit.
  std::array<SplitFiles, 3> splits = {SplitFiles(options.output, "train", options.pairs, false),
                                      SplitFiles(options.output, "valid", options.valid, true),
                                      SplitFiles(options.output, "test", options.test, true)};
  for (SplitFiles& split : splits) HADAL_RETURN_IF_ERROR(split.Open(options.overwrite));
  const auto full = [](const SplitFiles& split) { return split.full(); };
  std::optional<WorkProgress> progress(std::in_place, "writing", "pairs", options.pairs + options.valid + options.test);
  for (uint64_t index = 0; !std::ranges::all_of(splits, full); ++index) {
    const SyntheticPair pair = MakeSyntheticPair(options.seed, index);
    if (splits[static_cast<size_t>(SplitOf(pair.english))].Add(pair)) progress->Advance(1);
  }
  progress.reset();
  for (SplitFiles& split : splits) HADAL_RETURN_IF_ERROR(split.Finish());
  out << "wrote " << HumanCount(options.pairs) << " training, " << HumanCount(options.valid) << " validation and "
      << HumanCount(options.test) << " test pairs (seed " << options.seed << ") to " << options.output << " in "
      << HumanDuration(watch.Seconds()) << std::endl;
  return absl::OkStatus();
}

void AddMakeCorpusCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("make-corpus", "Write an English-German corpus generated from a grammar");
  auto options = std::make_shared<GenerateOptions>();
  command.AddOption("-o,--out", options->output, "Output folder").Required().ValueName("DIR");
  command.AddOption("--pairs", options->pairs, "Training pairs").InRange(1, 1000000000).ShowDefault();
  command.AddOption("--valid", options->valid, "Validation pairs, never seen in training")
      .InRange(0, 1000000000)
      .ShowDefault();
  command.AddOption("--test", options->test, "Test pairs, never seen in training").InRange(0, 1000000000).ShowDefault();
  command.AddOption("--seed", options->seed, "Seed of the corpus").ShowDefault();
  command.AddFlag("--overwrite", options->overwrite, "Replace existing files");
  command.Runs([options, &exit_code] {
    const absl::Status status = RunGenerate(*options, std::cout);
    exit_code = EndTool("make-corpus", status);
  });
}

}  // namespace hadal
