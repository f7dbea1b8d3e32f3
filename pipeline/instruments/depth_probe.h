// The probe: one small batch that never changes, run forward without dropout, so that what the instruments see of it
// changes with the weights alone.
//
// It is the first sentences of the training corpus that fit. F(x, θ_0), the decoder's output before the first update,
// is what ‖ΔF‖ is measured from; the rank of the output head keeps it in RUN_DIR/depth_probe.safetensors, so that it
// outlives a resume.
// Threads: one a rank; what takes an engine or collectives is collective and blocking.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/engine.h"
#include "pipeline/instruments/depth_statistics.h"
#include "pipeline/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"
#include "runtime/safetensors.h"

namespace hadal {

inline constexpr char kDepthProbeFile[] = "depth_probe.safetensors";

class DepthProbe {
 public:
  // Errors: InvalidArgument when no sentence of the corpus fits a micro-batch.  REQUIRES: options.depth.probe_tokens >
  // 0.
  static absl::StatusOr<DepthProbe> Create(const TrainOptions& options, const ModelPlan& plan, const Corpus& corpus);

  // Forward with the weights as they are at `update` (1-based); statistics() then hold the sums of this rank's
  // sublayers.
  absl::Status Run(Engine& engine, int64_t update);

  // What the last Run gave is F(x, θ_0), and is kept. Errors: those of the file, on every rank alike (measuring goes on
  // without it).
  absl::Status KeepFirstOutput(Collectives& collectives);
  // F(x, θ_0) is what an earlier start of this run kept. Errors, on every rank alike: it is not there, damaged, or of
  // another probe.
  absl::Status LoadFirstOutput(Engine& engine, Collectives& collectives);

  const DepthStatistics& statistics() const { return *statistics_; }
  // Where the output head is: ‖F(x, θ) − F(x, θ_0)‖² of the last Run, summed over the rows; elsewhere 0.
  double ChangeSquares() const;
  // Rows of F where the output head is; elsewhere 0.
  int64_t output_rows() const;

 private:
  DepthProbe(const ModelPlan& plan, std::string path) : plan_(&plan), path_(std::move(path)) {}
  // Where the output head is that runs the probe.
  bool KeepsOutput(Engine& engine) const;
  absl::Status Write() const;
  absl::Status Read();
  SafetensorsMetadata Identity() const;

  const ModelPlan* plan_;
  std::string path_;
  uint64_t seed_ = 0;
  std::vector<PackedBatch> batches_;  // [1]
  std::unique_ptr<DepthStatistics> statistics_;
  std::vector<float> first_output_;  // F(x, θ_0) [rows·d]; empty: not here, or not known
};

}  // namespace hadal
