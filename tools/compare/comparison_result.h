// Judges the result of one run of `hadal compare` by one rule for all methods: has the model learned from context, or
// only how frequent each token is? The run trains one cell (combination of settings) of a grid (comparison_grid.h).
//
//   below = H − best validation nll       in nats per target token
//   H     = the nll of the same validation sentences if every token is predicted by its frequency in the training text
//   trains   below ≥ 0.3     it has learned from context
//   fails    below < 0.05    it has learned token frequencies at most
//   between  otherwise
//   too short  as fails, but its training nll was still falling: by at least 0.05 from the fourth to the last fifth of
//            its steps, or it has fewer than five
//   diverged the run ended because its numbers were not finite; takes precedence over the others
//   not known  H or the validation nll is missing
// Why not the loss: with Post-LN the loss also falls at first if training fails, through the output layer alone; only
// the distance below H separates the two. Thread safety: pure, except for reading files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/compare/comparison_run.h"
#include "tools/output/run_record.h"

namespace hadal {

inline constexpr double kTrainsBelow = 0.3, kFailsBelow = 0.05;  // nats per target token

enum class Verdict { kTrains, kBetween, kFails, kTooShort, kDiverged, kUnknown };
// "trains", "between", "fails", "too short", "diverged", "not known".
std::string ToString(Verdict verdict);

struct CellResult {
  int64_t steps = 0;
  std::optional<double> loss;      // of the last step, if finite
  std::optional<double> best_nll;  // of all validations
  int64_t best_step = 0;
  std::optional<double> below_unigram;
  Verdict verdict = Verdict::kUnknown;
};

CellResult JudgeCell(const CellRun& run, const RunRecord& record);

// The unigram level of the samples that a run validates; nullopt if there are none: it does not validate, or none fits
// its micro-batches, which the run itself refuses with a remedy.
// Errors: those of opening the corpora; DataLoss if a file is changed meanwhile.
absl::StatusOr<std::optional<double>> UnigramLevel(const config::RunConfig& config);

}  // namespace hadal
