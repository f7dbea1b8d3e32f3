// The description of a run that is reported before its first step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/train_options.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// Returns the description for MetricsSink::OnStart. `threads`: CPU threads of one rank. `first_step`: from 1.
RunInfo DescribeRun(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline, int threads,
                    int64_t first_step);

// Describes how many of the corpus's `samples` are left out because they are too long: "12 of 345 training samples
// (3.48%) are left out: …", with the settings that decide it; "" if `too_long` is 0. `corpus`: e.g. "training".
std::string DescribeLeftOut(std::string_view corpus, int64_t too_long, int64_t samples, const TrainOptions& options);

// Errors: InvalidArgument, with a remedy, if the share of training samples that are too long exceeds
// options.max_left_out.
absl::Status CheckLeftOut(int64_t too_long, int64_t samples, const TrainOptions& options);

}  // namespace hadal
