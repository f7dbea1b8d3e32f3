// `hadal make-corpus` writes an English-German corpus from a grammar: of any size and reproducible, for a first run
// without other data.
//
//   hadal make-corpus --out DIR [--pairs N] [--valid N] [--test N] [--seed S]
// Writes train.en, train.de, valid.en, … into DIR, ready for `hadal prepare`. Pair i is a function of (seed, i) alone.
// The checksum of its English sentence assigns a pair to valid, test or train, so held-out sentences never occur in
// training, for any seed and sizes. Sentences are grammatical, but their content is often nonsense. Files:
// synthetic_lexicon (words), synthetic_clause (abstract syntax), synthetic_sampler (draws sentences), synthetic_english
// and synthetic_german (write them).
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
  std::string output;  // a folder; created if missing
  int64_t pairs = 100'000;
  int64_t valid = 1'000;
  int64_t test = 1'000;
  uint64_t seed = 1;
  bool overwrite = false;  // replace existing files
};

// Writes the six files (none for a split of size 0) and one line to `out`. No English sentence occurs twice in valid or
// in test.
// Errors: bad sizes; AlreadyExists; those of writing, after which no file is half-written.
absl::Status RunGenerate(const GenerateOptions& options, std::ostream& out);

// Registers the subcommand; it stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddMakeCorpusCommand(Command app, int& exit_code);

}  // namespace hadal
