// DepthProbe runs one fixed small batch forward without dropout, so that the measurements on it depend on the weights
// alone.
//
// The batch is the first sentences of the training corpus that fit a micro-batch of DepthOptions::probe_tokens per
// side. F(x, θ) is the decoder's output for the batch x with the weights θ, and ‖ΔF‖ = ‖F(x, θ) − F(x, θ_0)‖ its change
// since before the first update, when the weights were θ_0. The rank of the output head (of replica 0) stores F(x, θ_0)
// in RUN_DIR/depth_probe.safetensors, with a checksum, for a resumed run.
// Threads: one per rank. Calls that take an engine or collectives are collective and blocking.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/engine/engine.h"
#include "pipeline/instruments/depth_statistics.h"
#include "pipeline/options/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"
#include "runtime/safetensors.h"

namespace hadal {

class DepthProbe {
 public:
  // Errors: InvalidArgument if no sentence of the corpus fits a micro-batch.  REQUIRES: options.depth.probe_tokens > 0.
  static absl::StatusOr<DepthProbe> Create(const TrainOptions& options, const ModelPlan& plan, const Corpus& corpus);

  // Runs the forward with the current weights; statistics() then holds the sums of this rank's sublayers. `update`: all
  // updates of the weights so far, but at least 1, for BranchNorm's branch gain.
  absl::Status Run(Engine& engine, int64_t update);

  // Stores the last Run's output as F(x, θ_0). Errors: those of the file, the same on every rank (measuring can
  // continue without it).
  absl::Status KeepFirstOutput(Collectives& collectives);
  // Loads the F(x, θ_0) that an earlier attempt of this run stored. Errors, alike on all ranks: the file is missing,
  // damaged, or of another probe.
  absl::Status LoadFirstOutput(Engine& engine, Collectives& collectives);

  const DepthStatistics& statistics() const { return *statistics_; }
  // ‖F(x, θ) − F(x, θ_0)‖² of the last Run, summed over the rows, on the rank that keeps F(x, θ_0); elsewhere 0.
  double ChangeSquares() const;
  // Rows of F(x, θ_0) on the rank that keeps it; elsewhere 0.
  int64_t output_rows() const;

 private:
  DepthProbe(const ModelPlan& plan, std::string path) : plan_(&plan), path_(std::move(path)) {}
  // Whether this rank keeps F(x, θ_0): the output head's rank in replica 0.
  bool KeepsOutput(Engine& engine) const;
  absl::Status Write() const;
  absl::Status Read();
  SafetensorsMetadata Identity(const std::vector<float>& output) const;

  const ModelPlan* plan_;
  std::string path_;
  uint64_t seed_ = 0;
  std::vector<PackedBatch> batches_;  // [1]
  std::unique_ptr<DepthStatistics> statistics_;
  std::vector<float> first_output_;  // F(x, θ_0) [rows·d]; empty: not kept here, or not known
};

}  // namespace hadal
