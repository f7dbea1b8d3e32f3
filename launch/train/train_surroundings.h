// What a run's trainer does beside training: translating at validations for BLEU, tracing some steps.
//
// Threads: one per rank.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "launch/train/train_layout.h"
#include "launch/train/train_preparation.h"
#include "launch/train/training_sinks.h"
#include "pipeline/step_tracer.h"
#include "pipeline/validation_bleu.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// BLEU at validations; null if the config does not ask for it. Prints which sentences it leaves out, and what its BLEU
// does not cover. `prepared` and `layout` must outlive it.
// Blocking: all ranks call it together.  Errors: any rank's of reading the vocabularies; those of Communicator::Wait.
absl::StatusOr<std::unique_ptr<ValidationBleu>> MakeValidationBleu(const PreparedRun& prepared, const RunLayout& layout,
                                                                   Collectives& collectives, TrainingSinks& sinks);

// The steps of --trace, whose trace is written into the run directory; without --trace none. `arguments` and `sinks`
// must outlive it.
// Errors: InvalidArgument if it is not a list of steps, or goes beyond `stop`.
absl::StatusOr<TraceRequest> MakeTraceRequest(const TrainArguments& arguments, const StopOptions& stop,
                                              TrainingSinks& sinks);

}  // namespace hadal
