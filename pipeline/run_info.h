// What a run says of itself before its first step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "layers/model_plan.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/train_options.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// `threads`: a rank's.
RunInfo DescribeRun(const TrainOptions& options, const ModelPlan& plan, const PipelinePlan& pipeline, int threads,
                    int64_t first_step);

// "12 of 345 training samples (3.48%) are left out: …", by the settings that decide it; "" where all fit. `corpus`:
// "training", say.
std::string DescribeLeftOut(std::string_view corpus, int64_t too_long, int64_t samples, const TrainOptions& options);

// Errors: InvalidArgument where more of the training samples are too long than options.max_left_out allows, with what
// to try.
absl::Status CheckLeftOut(int64_t too_long, int64_t samples, const TrainOptions& options);

}  // namespace hadal
