// `hadal inspect`: a corpus (inspect_corpus.h), or a batch: the token ids, and their text, that a given step trains on.
//
//   hadal inspect batch --data PREFIX --step N [--seed S] [--micro-batches M] [--source-tokens N] [--target-tokens N]
//   [--max-positions N]
// With the values of the run's config this is the trainer's own order (runtime/data/sampling_order.h): a function of
// seed and step alone, so a step that went wrong can be looked at without running up to it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"
#include "tools/command_line.h"

namespace hadal {

struct InspectBatchOptions {
  std::string data;  // prefix of a prepared corpus
  int64_t step = 0;  // from 0
  uint64_t seed = 1;
  int32_t micro_batches = 4;
  int64_t source_tokens = 1024;  // capacities of a micro-batch, </s> counted
  int64_t target_tokens = 1024;
  int64_t max_positions = 1024;  // the model's: longest side of a sentence, </s> counted
  int64_t max_sentences = 0;     // print at most so many a micro-batch; 0: all
  bool ids_only = false;         // no text: the vocabulary files are not needed
};

// Prints the step. Errors: those of opening the corpus and its vocabularies; InvalidArgument for a negative step or
// sizes that nothing fits.
absl::Status RunInspectBatch(const InspectBatchOptions& options, std::ostream& out);

// Registers `inspect` with its subcommands; running one stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddInspectCommand(Command app, int& exit_code);

}  // namespace hadal
