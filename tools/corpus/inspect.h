// `hadal inspect` describes a corpus (inspect_corpus.h) or prints a batch: the token ids, and their text, of a given
// step.
//
//   hadal inspect batch CORPUS --step N [--seed S] [--micro-batches M] [--source-tokens N] [--target-tokens N]
//   [--max-positions N] [--sampling-temperature T…]
// With the values of a run's config this is the trainer's order (runtime/data/sampling_order.h), a function of seed and
// step alone. So a failed step can be examined without training up to it.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/command_line.h"

namespace hadal {

struct InspectBatchOptions {
  std::string data;  // prefix of a prepared corpus
  int64_t step = 1;  // from 1
  uint64_t seed = 1;
  int32_t micro_batches = 4;
  int64_t source_tokens = 1024;  // capacities of a micro-batch, with </s>
  int64_t target_tokens = 1024;
  int64_t max_positions = 1024;      // the model's: longest side of a sentence, with </s>
  std::vector<double> temperatures;  // data.sampling_temperature
  int64_t max_sentences = 0;         // sentences printed per micro-batch; 0: all
  bool ids_only = false;             // prints no text and needs no vocabulary files
};

// Prints the step. Errors: those of opening the corpus and its vocabularies; InvalidArgument for a step below 1 or
// capacities that no sentence fits.
absl::Status RunInspectBatch(const InspectBatchOptions& options, std::ostream& out);

// Registers `inspect` with its subcommands; running one stores 0, 1 (error) or 2 (bad usage) in `exit_code`.
void AddInspectCommand(Command app, int& exit_code);

}  // namespace hadal
