#include "tools/compare/comparison_result.h"

#include <cmath>
#include <vector>

#include "runtime/data/corpus.h"
#include "runtime/data/sampling_order.h"
#include "runtime/status_macros.h"
#include "tools/corpus/inspect.h"

namespace hadal {
namespace {

// The mean training nll of the `part`-th fifth of the steps, counted from 0.
double MeanNll(const std::vector<StepMetrics>& steps, size_t part) {
  const size_t begin = steps.size() * part / 5, end = steps.size() * (part + 1) / 5;
  double sum = 0, count = 0;
  for (size_t i = begin; i < end; ++i) {
    if (!std::isfinite(steps[i].nll)) continue;  // a skipped step
    sum += steps[i].nll;
    ++count;
  }
  return sum / count;
}

bool StillFalls(const std::vector<StepMetrics>& steps) {
  return steps.size() < 5 || MeanNll(steps, 3) - MeanNll(steps, 4) >= kFailsBelow;
}

Verdict Judge(const CellRun& run, const RunRecord& record, const std::optional<double>& below) {
  if (run.end == CellEnd::kDiverged) return Verdict::kDiverged;
  if (!below) return Verdict::kUnknown;
  if (*below >= kTrainsBelow) return Verdict::kTrains;
  if (*below >= kFailsBelow) return Verdict::kBetween;
  return StillFalls(record.steps) ? Verdict::kTooShort : Verdict::kFails;
}

}  // namespace

std::string ToString(Verdict verdict) {
  switch (verdict) {
    case Verdict::kTrains:
      return "trains";
    case Verdict::kBetween:
      return "between";
    case Verdict::kFails:
      return "fails";
    case Verdict::kTooShort:
      return "too short";
    case Verdict::kDiverged:
      return "diverged";
    case Verdict::kUnknown:
      break;
  }
  return "not known";
}

CellResult JudgeCell(const CellRun& run, const RunRecord& record) {
  CellResult result;
  if (!record.steps.empty()) {
    result.steps = record.steps.back().step;
    if (std::isfinite(record.steps.back().loss)) result.loss = record.steps.back().loss;
  }
  for (const ValidationRecord& validation : record.validations) {
    if (!std::isfinite(validation.nll) || (result.best_nll && validation.nll >= *result.best_nll)) continue;
    result.best_nll = validation.nll;
    result.best_step = validation.step;
  }
  if (result.best_nll && run.unigram_nll) result.below_unigram = *run.unigram_nll - *result.best_nll;
  result.verdict = Judge(run, record, result.below_unigram);
  return result;
}

absl::StatusOr<std::optional<double>> UnigramLevel(const config::RunConfig& config) {
  if (config.validation().every_steps() == 0 || config.data().validation().empty()) return std::nullopt;
  HADAL_ASSIGN_OR_RETURN(const Corpus train, Corpus::Open(config.data().train()));
  HADAL_ASSIGN_OR_RETURN(const Corpus validation, Corpus::Open(config.data().validation()));
  const BatchCapacity capacity = {.source_rows = config.batch().source_tokens(),
                                  .target_rows = config.batch().target_tokens(),
                                  .sentence_rows = config.model().max_positions()};
  const absl::StatusOr<ValidationSamples> validated =
      ChooseValidationSamples(validation, capacity, config.validation().max_sentences());
  if (absl::IsInvalidArgument(validated.status())) return std::nullopt;  // nothing fits
  HADAL_RETURN_IF_ERROR(validated.status());
  return UnigramNll(train, validation, validated->samples);
}

}  // namespace hadal
