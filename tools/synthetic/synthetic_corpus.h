// `hadal make-corpus`: an English-German corpus from a grammar, unlimited and reproducible, for a first run without any
// data.
//
//   hadal make-corpus --out DIR [--pairs N] [--valid N] [--test N] [--seed S]
// writes train.en, train.de, valid.en, … into DIR, ready for `hadal prepare`.
// Pair i is a function of (seed, i) alone. A pair belongs to valid, test or train by the checksum of its English
// sentence: what is held out cannot occur in training, whatever the seed and the sizes. Sentences are grammatical; what
// they say is often nonsense. The files: synthetic_lexicon (words), synthetic_clause (abstract syntax),
// synthetic_sampler (draws it), synthetic_english and synthetic_german (write it down).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"
#include "tools/command_line.h"

namespace hadal {

struct SyntheticPair {
  std::string english;
  std::string german;
};

SyntheticPair MakeSyntheticPair(uint64_t seed, uint64_t index);

enum class SyntheticSplit { kTrain, kValid, kTest };

// 1 in 32 sentences is valid, 1 in 32 test.
SyntheticSplit SplitOf(const std::string& english);

struct GenerateOptions {
  std::string output;  // a folder, made where it is missing
  int64_t pairs = 100'000;
  int64_t valid = 1'000;
  int64_t test = 1'000;
  uint64_t seed = 1;
  bool overwrite = false;  // replace files that are there
};

// Writes the six files (a split of size 0 is left out) and one line to `out`. No English sentence occurs twice in valid
// or in test.
// Errors: bad sizes; AlreadyExists; those of writing, after which no file is half-written.
absl::Status RunGenerate(const GenerateOptions& options, std::ostream& out);

// Registers the subcommand; running it stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddMakeCorpusCommand(Command app, int& exit_code);

}  // namespace hadal
