// How numbers leave the trainer: the rank that reports fills these plain records and passes them to a MetricsSink.
// Sinks are in tools/ (metrics.jsonl, TensorBoard, the progress line); the trainer knows only this interface.
//
// Conventions: loss and nll are natural-log means over the step's target tokens (`loss` with label smoothing, `nll`
// without); perplexity = exp(nll). A value that does not exist is an empty optional or an empty vector, never a special
// number. A value that exists and is not finite is passed on as it is; each sink decides how to show it.
// Threads: a sink is called by one thread at a time, in step order. Calls may write to a file or a terminal; none waits
// for a peer. A sink must not change training: it returns nothing, and reports its own errors through Flush().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/depth_metrics.h"

namespace hadal {

// Known before the first step. Sent once, also after a resume.
struct RunInfo {
  std::string run_directory;
  std::string model;  // one line for people: "DeepNorm 500L-500L d=64 (2,500 sublayers)"
  int64_t parameters = 0;
  int32_t source_vocabulary = 0;  // tokens; 0: no source
  int32_t target_vocabulary = 0;
  int32_t encoder_sublayers = 0;  // depth_gradient_norms[0, encoder_sublayers) belong to the encoder
  int32_t decoder_sublayers = 0;  // … and the next decoder_sublayers to the decoder
  int32_t ranks = 1;
  int32_t stages = 1;
  int32_t replicas = 1;     // of the pipeline; ranks = stages x replicas
  int32_t threads = 1;      // a rank
  int64_t first_step = 0;   // the step about to run: 0, or the resumed one
  int64_t total_steps = 0;  // 0: not limited by steps
};

// How one stage spent the wall time of one step.
struct StageTimes {
  double forward_seconds = 0;
  double recompute_seconds = 0;  // recomputation's second forward
  double backward_seconds = 0;
  double wait_seconds = 0;           // idle, for a neighbour's message
  double communication_seconds = 0;  // posting, copying and reducing
  double optimizer_seconds = 0;      // clearing gradients, the update
  double checkpoint_seconds = 0;     // the update held up by a checkpoint that was not yet written
  // Part of forward, recompute, backward and optimizer: the time that the rank's first thread was ready but had no core
  // (run_queue_clock.h).
  double core_wait_seconds = 0;
  double launches = 0;  // on the stage's device: kernels, products, copies within it, graphs; 0 on the CPU
};

// The memory of one stage's process.
struct StageMemory {
  int64_t arena_bytes = 0;          // its buffers, as planned
  int64_t held_bytes = 0;           // of the process between steps, the highest so far (host_memory.h)
  int64_t peak_resident_bytes = 0;  // of the process, so far; includes memory inside steps, and pages of files
  int64_t graph_bytes = 0;          // device memory taken by graphs, approximately
};

// One step: one global batch.
struct StepMetrics {
  int64_t step = 0;         // always advances; 0-based
  int64_t update = 0;       // updates applied so far, this step included
  int64_t total_steps = 0;  // 0: not limited by steps
  double loss = 0;          // with label smoothing
  double nll = 0;           // without
  double perplexity = 0;    // exp(nll)
  double learning_rate = 0;
  double gradient_norm = 0;      // global, before clipping
  int64_t target_tokens = 0;     // in this step
  double tokens_per_second = 0;  // target tokens
  double step_seconds = 0;
  double elapsed_seconds = 0;  // since the run (or its resumption) began
  double epoch = 0;            // passes over the corpus so far, fractional
  bool skipped = false;        // the update was not applied: the gradient was not finite, or the loss was a spike
  std::optional<double> eta_seconds;      // until the run's first limit; empty while unknown
  std::vector<StageTimes> stages;         // [stages], or empty
  std::vector<StageMemory> memory;        // [stages], or empty
  std::optional<double> measured_bubble;  // Σ wait / Σ step time, over stages
  std::optional<double> analytic_bubble;  // the schedule's own, with the plan's costs
  // [encoder_sublayers + decoder_sublayers] Frobenius norm a sublayer, or empty.
  std::vector<float> depth_gradient_norms;
};

struct ValidationMetrics {
  int64_t step = 0;  // steps done before this validation: it sees the weights that step `step` will start from
  double nll = 0;
  double perplexity = 0;
  std::optional<double> bleu;  // [0, 100]
  bool best = false;           // the best nll so far
  int64_t sentences = 0;
  double seconds = 0;
};

struct CheckpointMetrics {
  int64_t step = 0;       // steps done when it was taken
  std::string directory;  // where it is
  double seconds = 0;     // from start to commit; training continues meanwhile
  // The part of `seconds` that training waited, on the rank that waited longest: before updates, in votes, at the run's
  // end.
  double stall_seconds = 0;
  double interval_seconds = 0;  // since the start of the previous save, or of the run
};

enum class TextKind {
  kNotice,
  kWarning,
  kSample,  // a sample translation
};

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  virtual void OnStart(const RunInfo& run) {}
  virtual void OnStep(const StepMetrics& metrics) {}
  // After OnStep of the same step, at the steps that the instruments record.
  virtual void OnDepth(const DepthMetrics& metrics) {}
  virtual void OnValidation(const ValidationMetrics& metrics) {}
  virtual void OnCheckpoint(const CheckpointMetrics& metrics) {}
  // An event in words. `text` may have several lines; the last one does not end with a newline.
  virtual void OnText(int64_t step, TextKind kind, std::string_view text) {}
  // The run is over, by `reason` ("all steps done", "time limit reached", …: launch/train.cc). Last call but Flush().
  virtual void OnFinish(std::string_view reason) {}
  // Writes out what is buffered. Errors: the sink's first error since the start, reported once (disk full, file gone).
  virtual absl::Status Flush() { return absl::OkStatus(); }
};

// Passes every call to each of its sinks, in the order they were added.
class MetricsFanOut : public MetricsSink {
 public:
  void Add(std::unique_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }

  void OnStart(const RunInfo& run) override {
    for (auto& sink : sinks_) sink->OnStart(run);
  }
  void OnStep(const StepMetrics& metrics) override {
    for (auto& sink : sinks_) sink->OnStep(metrics);
  }
  void OnDepth(const DepthMetrics& metrics) override {
    for (auto& sink : sinks_) sink->OnDepth(metrics);
  }
  void OnValidation(const ValidationMetrics& metrics) override {
    for (auto& sink : sinks_) sink->OnValidation(metrics);
  }
  void OnCheckpoint(const CheckpointMetrics& metrics) override {
    for (auto& sink : sinks_) sink->OnCheckpoint(metrics);
  }
  void OnText(int64_t step, TextKind kind, std::string_view text) override {
    for (auto& sink : sinks_) sink->OnText(step, kind, text);
  }
  void OnFinish(std::string_view reason) override {
    for (auto& sink : sinks_) sink->OnFinish(reason);
  }
  // Flushes all; the first error wins.
  absl::Status Flush() override {
    absl::Status first;
    for (auto& sink : sinks_) first.Update(sink->Flush());
    return first;
  }

 private:
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
};

}  // namespace hadal
