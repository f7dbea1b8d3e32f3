// What a run asks its trainer to do beside training: translate at validations for BLEU, write a timeline of some steps.
//
// Threads: one a rank.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "launch/train_layout.h"
#include "launch/train_preparation.h"
#include "launch/training_sinks.h"
#include "pipeline/decode/validation_bleu.h"
#include "pipeline/step_tracer.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// BLEU at validations, null where the config asks for none; tells which sentences it leaves out, and of what BLEU says
// nothing. `prepared` and `layout` must outlive it.
// Blocking: all ranks call it together.  Errors: those of reading the vocabularies, of any rank; those of transfers.
absl::StatusOr<std::unique_ptr<ValidationBleu>> ShareValidationBleu(const PreparedRun& prepared,
                                                                    const RunLayout& layout, Collectives& collectives,
                                                                    TrainingSinks& sinks);

// The steps of --trace, to be written into the run directory; none without it. `arguments` and `sinks` must outlive it.
// Errors: InvalidArgument where it is no list of steps, or goes beyond `stop`.
absl::StatusOr<TraceRequest> MakeTraceRequest(const TrainArguments& arguments, const StopOptions& stop,
                                              TrainingSinks& sinks);

}  // namespace hadal
