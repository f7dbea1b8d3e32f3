// The interface between the trainer and its outputs: one rank, the reporting rank, fills these records and passes them
// to a MetricsSink. Sinks are in tools/output (metrics.jsonl, TensorBoard, the progress line).
//
// Conventions: loss and nll are natural-log means over the step's target tokens (`loss` with label smoothing, `nll`
// without); perplexity = exp(nll). A missing measurement is an empty optional or an empty vector, never a special
// number. A value that is not finite is passed on as it is; each sink decides how to show it. In every record `step`
// is the step that was just done, counted from 1, whether or not its update was applied; 0: before the first step.
// Threads: one thread at a time calls a sink, in step order. Calls may write to a file or a terminal; none waits for a
// peer. A sink must not change training: it returns nothing, and reports its own errors through Flush().
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

// Values of OnFinish's `reason` that readers of the records distinguish.
inline constexpr std::string_view kAllStepsDone = "all steps done";
inline constexpr std::string_view kStoppedToResume =
    "stopped on a signal or a time limit; start the same command again to resume";

// Sent once before the first step, also after a resume.
struct RunInfo {
  std::string run_directory;
  std::string attempt;  // the launch that owns the run directory (runtime/run_directory.h)
  std::string model;    // shown to users: "DeepNorm 500L-500L d=64 (2,500 sublayers)"
  int64_t parameters = 0;
  int32_t source_vocabulary = 0;  // tokens; 0: no source, or speech
  int32_t frame_width = 0;        // features of a frame of speech; 0: text
  int32_t target_vocabulary = 0;
  int32_t encoder_sublayers = 0;  // come first in lists of one value per sublayer
  int32_t decoder_sublayers = 0;  // follow the encoder's in such lists
  int32_t ranks = 1;
  int32_t stages = 1;
  int32_t replicas = 1;         // of the pipeline; ranks = stages x replicas
  bool free_links = false;      // the schedule assumes that messages between ranks take no time
  int32_t threads = 1;          // per rank
  int32_t recompute_every = 0;  // sublayers between kept inputs (recomputation), as used; 0: no recomputation
  std::string layout;           // other settings that decide a step's time, for readers: schedule, chunks per rank …
  int64_t first_step = 1;       // the next step to run
  bool from_copy = false;       // the step before it comes from copies in memory
  int64_t total_steps = 0;      // 0: no limit on steps
};

// The wall time of one stage in one step: the mean over its replicas.
struct StageTimes {
  double forward_seconds = 0;
  double recompute_seconds = 0;  // the second forward of recomputation; 0 on a device: in backward_seconds there
  double backward_seconds = 0;
  double wait_seconds = 0;           // idle, waiting for a neighbour's message
  double communication_seconds = 0;  // posting, copying and reducing
  double optimizer_seconds = 0;      // clearing gradients and applying the update
  double checkpoint_seconds = 0;     // waiting for a checkpoint to be written before the update is applied
  // Time in which the rank's first thread was ready to run but had no core (pipeline/engine/program_clock.h). Included
  // in the forward, recompute, backward and optimizer times.
  double core_wait_seconds = 0;
  double launches = 0;  // kernels, products, copies, graphs on the stage's device; 0 on the CPU
};

// The memory of one stage's process: the most over its replicas.
struct StageMemory {
  int64_t arena_bytes = 0;          // planned buffers
  int64_t held_bytes = 0;           // highest HeldBytes() between steps so far (machine.h)
  int64_t peak_resident_bytes = 0;  // so far; includes memory inside steps and mapped files
  int64_t graph_bytes = 0;          // device memory of graphs, approximate
};

// One step, that is, one global batch.
struct StepMetrics {
  int64_t step = 0;
  int64_t update = 0;       // updates applied so far, including this step
  int64_t total_steps = 0;  // 0: no limit on steps
  double loss = 0;          // with label smoothing
  double nll = 0;           // without
  double perplexity = 0;    // exp(nll)
  double learning_rate = 0;
  double gradient_norm = 0;   // global, before clipping
  int64_t target_tokens = 0;  // in this step
  // The step's target tokens from each corpus (such as a language pair); empty if the run has only one corpus.
  std::vector<std::pair<std::string, int64_t>> corpus_tokens;
  double tokens_per_second = 0;  // target tokens
  double step_seconds = 0;
  double elapsed_seconds = 0;             // since the start of the run, or of its resumption
  double epoch = 0;                       // passes over the corpus so far, with a fraction
  bool skipped = false;                   // no update: the gradient was not finite, or the loss was a spike
  std::optional<double> eta_seconds;      // expected time until the run reaches a limit; empty if unknown
  std::string_view eta_limit = "steps";   // the limit reached first: "steps", "epochs" or "minutes" of config `stop`
  std::vector<StageTimes> stages;         // [stages], or empty
  std::vector<StageMemory> memory;        // [stages], or empty
  std::optional<double> measured_bubble;  // Σ wait / Σ step time, over stages
  std::optional<double> analytic_bubble;  // predicted from the schedule and the plan's cost of each operation
  // Frobenius norm of each sublayer's gradient, [encoder_sublayers + decoder_sublayers], or empty.
  std::vector<float> depth_gradient_norms;
};

// How translated sentences compare with their references: runtime/data/{bleu,chrf,word_errors}.h.
struct TranslationScores {
  double bleu = 0;                  // [0, 100]
  double chrf = 0;                  // [0, 100], chrF++
  double word_error_rate = 0;       // errors / words
  double character_error_rate = 0;  // errors / characters
};

// A validation's result on one corpus (such as a language pair) of several.
struct CorpusValidation {
  std::string corpus;
  double nll = 0;
  int64_t target_tokens = 0;                // over which nll is the mean
  std::optional<TranslationScores> scores;  // of the corpus's translated sentences, if any
};

struct ValidationMetrics {
  int64_t step = 0;
  double nll = 0;
  double perplexity = 0;
  std::optional<double> accuracy;           // encoder alone: share of masked tokens whose logit no other exceeds
  std::optional<TranslationScores> scores;  // of all translated sentences together
  bool best = false;                        // whether it is the best so far
  bool by_nll = true;                       // the best by nll; false: by a score
  int64_t sentences = 0;
  double seconds = 0;
  std::vector<CorpusValidation> corpora;  // those with a sentence; empty if there is only one corpus
};

struct CheckpointMetrics {
  int64_t step = 0;
  std::string directory;   // the checkpoint
  bool in_memory = false;  // whether it is a copy in the memory of hosts (pipeline/checkpoint/memory_copies.h)
  double seconds = 0;      // from start to commit; training continues meanwhile
  // Part of `seconds` in which training waited (before updates, in votes, at the end of the run), on the rank that
  // waited longest.
  double stall_seconds = 0;
  double interval_seconds = 0;  // since the start of the previous save or of the run
};

enum class TextKind {
  kNotice,
  kWarning,
  kDiagnosis,  // where a step failed, or what is wrong with the run
  kSample,     // a sample translation
};
constexpr const char* TextKindName(TextKind kind) {
  constexpr const char* kNames[] = {"notice", "warning", "diagnosis", "sample"};
  return kNames[static_cast<int>(kind)];
}

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  virtual void OnStart(const RunInfo& run) {}
  virtual void OnStep(const StepMetrics& metrics) {}
  // Called after OnStep of the same step, at the steps whose depth metrics are recorded.
  virtual void OnDepth(const DepthMetrics& metrics) {}
  virtual void OnValidation(const ValidationMetrics& metrics) {}
  virtual void OnCheckpoint(const CheckpointMetrics& metrics) {}
  // Reports an event as text. `text` may have several lines; the last one does not end with a newline.
  virtual void OnText(int64_t step, TextKind kind, std::string_view text) {}
  // The run has ended because of `reason` ("all steps done", "time limit reached", …). Only Flush() may follow.
  virtual void OnFinish(std::string_view reason) {}
  // Writes buffered output. Returns the sink's first error since the start (disk full, file removed), once.
  virtual absl::Status Flush() { return absl::OkStatus(); }
};

// Passes every call to each of its sinks, in the order of Add.
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
  // Flushes all sinks; returns the first error.
  absl::Status Flush() override {
    absl::Status first;
    for (auto& sink : sinks_) first.Update(sink->Flush());
    return first;
  }

 private:
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
};

}  // namespace hadal
