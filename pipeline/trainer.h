// The trainer runs the training loop on every rank: steps, validations, checkpoints, and the end of the run.
//
// Steps: a step's micro-batches are a function of the position in the data, the seed and the batch fields of the
// config, so every rank makes the same list, and the engine runs its replica's share of it. The position counts samples
// (TrainingProgress::place, sampling_order.h), so that the batch fields may change when a run resumes. `step` always
// advances. `update` advances only if the update was applied: if a gradient is not finite or the loss is a spike, all
// ranks skip it. After many skipped steps in a row the run goes back to its newest good checkpoint (run_health.h).
// Validations (validator.h) change no bit of training. They are due every `every_steps` steps and when a limit ends the
// run. The best steps and the count for stop.patience belong to one validation set and one metric: a run that resumes
// with another one resets them and begins with a validation. Checkpoints are written while training continues
// (checkpoint/training_checkpoints.h). Rank 0 sends metrics to a sink.
//
// Checkpoints by the clock: rank 0 decides when one is due, in the exchange of a step's gradient norms, so that all
// ranks save after the same step. In the same exchange rank 0 reports that another attempt (start of the run's job) has
// taken over the run directory (checkpoint/run_owner.h); the run then ends before that step is reported.
// Requests to stop: every rank polls for one when a step's gradient norms are exchanged and, because a validation may
// take as long as many steps, before each validation and within it. All ranks stop after the same step, and it is
// saved. A validation that is due then, or not complete, is recorded in the checkpoint
// (TrainingProgress::validation_due). A run that resumes from it begins with that validation and with what depends on
// it: `best`, patience, a save. So a run that was stopped has the same validations as one that was not.
// Threads: one per rank. Blocking. After an error the job can only end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/training_checkpoints.h"
#include "pipeline/engine/engine.h"
#include "pipeline/instruments/depth_recorder.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/train_options.h"
#include "pipeline/run_health.h"
#include "pipeline/step_report.h"
#include "pipeline/step_tracer.h"
#include "pipeline/validator.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/corpus.h"
#include "runtime/data/sampling_order.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// What a trainer uses. Referenced objects must outlive it.
struct TrainingSurroundings {
  Communicator& communicator;                   // the world's: stages × replicas
  Communicator* device_communicator = nullptr;  // EngineSetup::device_communicator; may be null
  Stream stream;                                // of the rank's device, or the CPU's
  const Corpus& train;
  const Corpus* validation = nullptr;  // may be null
  MetricsSink& sink;                   // called on rank 0 only
  // Returns whether the run should stop, for example because of a signal; once true, it stays so. Polled on every rank
  // once per step, and before and within validations. May be empty.
  std::function<bool()> stop_requested;
  // Called on every rank before each step, for a watchdog or for faults injected by tests. May be empty.
  std::function<void(int64_t step)> before_step;
  TranslateValidation validation_bleu;  // may be empty: no BLEU
  std::vector<std::string> hosts;       // [ranks]; for copies in memory alone
  TraceRequest trace;                   // steps to trace; none by default
};

enum class StopReason { kSteps, kEpochs, kMinutes, kPatience, kRequested };

struct TrainingOutcome {
  StopReason reason = StopReason::kSteps;
  TrainingProgress progress;
  std::string checkpoint;  // on rank 0 the directory of the last checkpoint written; "": none, or another rank
  bool saved = false;      // whether the run's final state is in a checkpoint; the same on every rank
};

class Trainer {
 public:
  // Lays out and allocates this rank's memory. Weights are undefined until they are loaded or Run begins.  `plan` and
  // `pipeline` must outlive the trainer. Errors: those of Engine::Create, Validator::Create and DepthRecorder::Create.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainOptions& options, const ModelPlan& plan,
                                                         const PipelineLayout& pipeline,
                                                         const TrainingSurroundings& surroundings,
                                                         TrainingCheckpointsOptions checkpoints);

  // Continues from the newest good checkpoint of the run; returns false if there is none. `find`: see
  // TrainingCheckpoints::LoadLatest.
  absl::StatusOr<bool> ResumeLatest(const FindCheckpoint& find = {});
  // Resume continues from the checkpoint `chosen`; InitializeFrom starts a new run from its weights (`weights`: also
  // those of a model with fewer layers; LoadedState). Rank 0's `chosen` counts; other ranks may pass any status.
  // Errors: those of TrainingCheckpoints::Load.
  absl::Status Resume(absl::StatusOr<FoundCheckpoint> chosen);
  absl::Status InitializeFrom(absl::StatusOr<FoundCheckpoint> chosen, LoadedState weights = LoadedState::kWeights);
  // Call after Resume or ResumeLatest. BeginDataAnew continues at the beginning of the training data, as a run with
  // another training corpus does in any case. ForgetBest forgets the best nll and the count for stop.patience; the run
  // then begins with a validation of the loaded weights.
  absl::Status BeginDataAnew();
  void ForgetBest();

  // Makes this attempt the owner of the run directory. Call it after a checkpoint has been loaded, if one is loaded. If
  // it is not called, Run() does it.
  absl::Status Claim() { return checkpoints_->Claim(progress_.step); }
  // The attempt that owns the run directory; empty before the claim.
  const std::string& attempt() const { return checkpoints_->attempt(); }

  // Initialises the weights unless they were loaded. Trains until a limit or a request to stop. Saves as configured,
  // and always after a request. Errors: OutOfRange (not finite, and going back did not help); Aborted (another attempt
  // took over the run directory, or it was removed); those of Communicator::Wait; those of files if the checkpoint at
  // the end could not be written (if an earlier one cannot be written, the run warns and continues).
  absl::StatusOr<TrainingOutcome> Run();

  Engine& engine() { return *engine_; }
  const TrainingProgress& progress() const { return progress_; }

 private:
  Trainer(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline,
          const TrainingSurroundings& surroundings, SamplingOrder order);

  bool StopRequested() const { return surroundings_.stop_requested && surroundings_.stop_requested(); }
  StepVote Vote() const;
  absl::Status LostError() const;  // the error of StepVote::kLost
  absl::StatusOr<StepResult> Step();
  // Takes over the progress of a loaded checkpoint, and gives the other replicas its weights.
  absl::Status Continue(const TrainingProgress& progress);
  absl::Status ContinueData(const TrainingProgress& loaded);
  void ContinueValidation(const TrainingProgress& before);
  void Note(const std::string& text);  // a notice, at the latest when the run is announced
  // Does nothing if weights were loaded: drawing and relaying all of them takes time and messages.
  absl::Status MakeNewWeights();
  // Initialises parameters that need a forward pass (Admin, layers/residual_profile.h). Called before the first step if
  // no checkpoint was loaded.
  absl::Status ProfileNewWeights();
  // Runs the validation and the save that are due after a step. Returns why the run ends, if it does. `vote`: the
  // step's.
  absl::StatusOr<std::optional<StopReason>> AfterStep(StepVote vote, bool validation_due);
  std::optional<StopReason> ReachedLimit() const;
  StepScalars Scalars() const;
  bool IsMain() const { return surroundings_.communicator.rank() == 0; }
  void Announce();  // reports the run, and the samples that it leaves out
  absl::Status RecordDepth(const StepResult& result);
  absl::Status GoBack();  // to the newest good checkpoint, as health_ says
  void Warn(std::string_view text);

  const TrainOptions options_;
  const ModelPlan& plan_;
  const PipelineLayout& pipeline_;
  TrainingSurroundings surroundings_;
  SamplingOrder order_;
  StepBatches batches_;
  std::optional<Validator> validator_;  // none: the run does not validate
  Collectives collectives_;
  RunHealth health_;
  StepReport report_;
  std::unique_ptr<Engine> engine_;
  std::optional<StepTracer> tracer_;
  std::unique_ptr<DepthRecorder> depth_;  // null: off
  std::unique_ptr<TrainingCheckpoints> checkpoints_;
  TrainingProgress progress_;
  std::optional<FoundCheckpoint> resumed_from_;  // rank 0's: what Resume() was given
  bool weights_loaded_ = false;                  // from a checkpoint
  bool save_due_ = false;                        // on disk; not yet begun, because steps are skipped
  bool copy_due_ = false;                        // in memory
  bool announced_ = false;
  std::vector<std::string> notes_;  // not yet reported
};

}  // namespace hadal
