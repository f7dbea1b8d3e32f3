// `hadal make-corpus` writes German number words and their English translations: a corpus for a first run without other
// data. The Python package pyhadal (tools/python/pyhadal/make_corpus.py) does the work, with the standard library
// alone.
#include "tools/commands.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/python_child.h"

namespace hadal {
namespace {

struct MakeCorpusOptions {
  std::string output;
  int64_t pairs = 20'000;
  int64_t valid = 1'000;
  int64_t test = 1'000;
  uint64_t seed = 1;
  bool overwrite = false;
};

std::vector<std::string> Words(const MakeCorpusOptions& options) {
  std::vector<std::string> words = {"--out",   options.output,
                                    "--pairs", absl::StrCat(options.pairs),
                                    "--valid", absl::StrCat(options.valid),
                                    "--test",  absl::StrCat(options.test),
                                    "--seed",  absl::StrCat(options.seed)};
  if (options.overwrite) words.push_back("--overwrite");
  return words;
}

}  // namespace

void AddMakeCorpusCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("make-corpus", "Write German number words and their English translations");
  auto options = std::make_shared<MakeCorpusOptions>();
  command.AddOption("-o,--out", options->output, "Output folder").Required().ValueName("DIR");
  command.AddOption("--pairs", options->pairs, "Training pairs").InRange(1, 1'000'000'000).ShowDefault();
  command.AddOption("--valid", options->valid, "Validation pairs, never seen in training")
      .InRange(0, 10'000)
      .ShowDefault();
  command.AddOption("--test", options->test, "Test pairs, never seen in training").InRange(0, 10'000).ShowDefault();
  command.AddOption("--seed", options->seed, "Seed of the corpus").ShowDefault();
  command.AddFlag("--overwrite", options->overwrite, "Replace existing files");
  command.Runs([options, &exit_code] { exit_code = RunPyhadal("make-corpus", Words(*options)); });
}

}  // namespace hadal
