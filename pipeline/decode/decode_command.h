// DecodeCommand: what the rank of the output head, which runs the search (decode_driver.h), tells all ranks to do:
// encode a group of sentences, execute one decoding step of a group, or end.
//
// Commands are few and small (five integers per row); every rank executes them in the order sent. A lane (one group of
// sentences in progress) has a pool of cache rows; its first rows, from 1 on, have the keys and values of the encoder's
// output, sentence after sentence.
// At the end the searching rank broadcasts the translations (TranslationsToBytes). All ranks run the same binary.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/decode/beam_search.h"
#include "pipeline/layout/decode_capacity.h"

namespace hadal {

// One hypothesis in one decoding step.
struct StepRow {
  int32_t token = 0;      // its newest token
  int32_t position = 0;   // of that token
  int32_t parent = 0;     // index in the lane's previous step of the hypothesis that this one extends
  int32_t cache_row = 0;  // where the token's key and value are written
  int32_t sentence = 0;   // index in the group
};

struct DecodeCommand {
  enum class Kind : int32_t { kEncode, kStep, kEnd };

  Kind kind = Kind::kEnd;
  int32_t lane = 0;
  std::vector<int32_t> source_offsets;  // kEncode: [sentences + 1]
  std::vector<int32_t> source;          // kEncode: [source rows] tokens, </s> included; for speech, utterance numbers
  std::vector<StepRow> rows;            // kStep

  // Number of integers of the largest command.
  static int64_t MostIntegers(const DecodeCapacity& capacity);
  // Writes the command to `out` and returns the number of integers used.  REQUIRES: `out` is large enough.
  int64_t Write(std::span<int32_t> out) const;
  // Errors: Internal if `in` is not a command.
  absl::Status Read(std::span<const int32_t> in);
};

// Translations: [sentences] lists of hypotheses.
std::string TranslationsToBytes(std::span<const std::vector<Hypothesis>> translations);
// Errors: Internal if `bytes` are truncated.
absl::StatusOr<std::vector<std::vector<Hypothesis>>> TranslationsFromBytes(std::string_view bytes);

}  // namespace hadal
