// The options of a training run as plain values. Only tools/ includes the config schema.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/orthogonalize.h"
#include "layers/model_options.h"
#include "pipeline/options/decoder_options.h"
#include "pipeline/options/grid_shape.h"
#include "pipeline/options/recompute_run.h"
#include "pipeline/schedule/schedule.h"
#include "runtime/data/bleu.h"
#include "runtime/data/input_masks.h"
#include "runtime/storage.h"

namespace hadal {

// The arithmetic of a run's matrix products. kAuto: bf16 on a GPU, else fp32; kTf32 and kBf16 need a GPU.
enum class TrainingPrecision { kAuto, kFp32, kTf32, kBf16 };

// Returns how a GPU stores the operands and results of matrix products.
constexpr Storage DeviceStorage(TrainingPrecision precision) {
  const bool bf16 = precision == TrainingPrecision::kAuto || precision == TrainingPrecision::kBf16;
  return bf16 ? Storage::kBFloat16 : Storage::kFloat32;
}

struct BatchOptions {
  int32_t micro_batches = 4;     // M, micro-batches a step (gradient accumulation)
  int32_t sum_groups = 0;        // G, groups of micro-batches whose sums are added in a tree; 0: one per replica
  int32_t source_tokens = 1024;  // capacity of one micro-batch, with </s>; read only if the model translates
  int32_t target_tokens = 1024;  // the same for the target; an encoder or a decoder alone reads only this
};

// Whether work on a device is launched as graphs (graph_cache.h). kAuto: yes.
enum class GraphMode : int32_t { kAuto, kOff };

// How messages travel between the devices of two ranks.
enum class Transport : int32_t {
  kAuto,  // NCCL if possible, else through the host
  kNccl,
  kHost,  // through pinned memory and the host's communicator
};

struct PipelineOptions {
  int32_t stages = 0;    // S; 0: ranks / replicas
  int32_t replicas = 1;  // R, pipelines that train in parallel, each on its share of a step's micro-batches
  Placement placement = Placement::kReplicasTogether;
  bool shard_optimizer_state = true;  // each slice's moments on one replica only (ZeRO-1)
  int32_t chunks = 1;                 // v, chunks a rank (interleaved schedule)
  ScheduleKind schedule = ScheduleKind::k1F1B;
  // The first sublayer of each global chunk except the first, in order of depth; empty: balanced by cost.
  std::vector<int32_t> split;
  int32_t outstanding_sends = 2;  // k, messages that a channel may have in flight
  int32_t recompute_every = 0;    // sublayers per recomputed segment (stage/chunk.h); 0: no recomputation
  // Limit for a rank's arena; a run that exceeds it does not start. 0: not set; a run then uses a rank's share of the
  // free memory (launch/memory_limit.h).
  int64_t memory_limit_bytes = 0;
  bool recompute_auto = false;          // whether recompute_every is chosen to fit memory_limit_bytes (memory_fit.h)
  std::vector<RecomputeRun> recompute;  // which sublayers are recomputed; empty: as recompute_every says
  double wait_timeout_seconds = 600;    // deadline of every wait for a peer or a device
  // Limit for a buffer to which a rank copies weights and moments that are still to be written to a checkpoint, just
  // before an update changes them. 0: the update waits until they are written.
  int64_t save_buffer_bytes = 0;
  int32_t threads = 0;  // CPU threads per rank; 0: the rank's share (runtime/machine.h)
  GraphMode graphs = GraphMode::kAuto;
  bool overlap_weight_gradients = false;  // on a device: whether gradients of weights have a queue of their own
  int64_t bucket_rows = 128;              // least size to which a device's micro-batches are rounded up (row_bucket.h)
  Transport transport = Transport::kAuto;
  // Beam search for BLEU at validations (pipeline/validator.h), in memory of every rank's arena. Not set: no BLEU.
  std::optional<DecoderOptions> decoder;
};

enum class OptimizerKind : int32_t { kAdam, kMuon };

// The factor by which Muon's rate is multiplied for a matrix [rows, columns].
enum class MuonScale : int32_t {
  kMatchRms,  // 0.2·sqrt(max(rows, columns) / width_multiplier()): AdamW's size (Liu et al. 2025, arXiv 2502.16982)
  kOriginal,  // sqrt(max(1, rows / columns)) (Jordan et al. 2024)
};

// The options of Muon, which updates the parameters for which ModelPlan::uses_muon is true; Adam updates the others.
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  NewtonSchulz iteration;
  MuonScale scale = MuonScale::kMatchRms;
  double rate_factor = 1;  // Muon's rate is the run's rate · rate_factor · the factor of `scale`
  bool operator==(const MuonOptions&) const = default;
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdam;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double clip_norm = 0;        // 0: off
  bool decays_vectors = true;  // whether norms, biases and learned gains decay, too
  MuonOptions muon;            // with OptimizerKind::kMuon

  // Returns the value for ModelPlan::muon_steps: Newton-Schulz steps per update; 0: without Muon.
  int32_t muon_steps() const { return kind == OptimizerKind::kMuon ? muon.iteration.steps : 0; }
};

// pipeline/learning_rate.h has the formulas.
enum class RateSchedule : int32_t {
  kInverseSqrt,  // warm-up, then falls as 1/sqrt(update)
  kPolynomial,   // warm-up, then a polynomial from peak to end_rate
  kTFixup,       // no warm-up
  kConstant,     // warm-up, then peak
  kCosine,       // warm-up, then half a cosine from peak to end_rate
  kWsd,          // warm-up, then peak, then a decay to end_rate (DecayShape)
};
// Whether the schedule reaches its last rate at the run's last update, so that all rates depend on the run's length.
inline bool EndsWithRun(RateSchedule schedule) {
  return schedule == RateSchedule::kPolynomial || schedule == RateSchedule::kCosine || schedule == RateSchedule::kWsd;
}
enum class DecayShape : int32_t { kLinear, kOneMinusSqrt, kCosine };

// fairseq's conventions: update k (1-based) uses rate(k − 1).
struct RateOptions {
  RateSchedule schedule = RateSchedule::kInverseSqrt;
  double peak = 5e-4;
  // May be 0. If the config gives a fraction of the run, tools/config/run_options.h has converted it to updates.
  double warmup_updates = 4000;
  double warmup_initial_rate = 1e-7;
  double end_rate = 0;       // of schedules that end with the run
  double power = 1;          // polynomial
  double decay_updates = 0;  // wsd
  DecayShape decay_shape = DecayShape::kLinear;
};

struct StopOptions {
  int64_t steps = 0;     // 0: no limit (one of the limits must be set)
  double epochs = 0;     // 0: no limit
  double minutes = 0;    // 0: no limit
  int32_t patience = 0;  // validations without a better score (ValidationOptions::metric); 0: off
};

// The score that decides which checkpoints are a run's best, and which validations are better (StopOptions::patience).
enum class ValidationMetric : int32_t { kNll, kBleu, kChrf };

struct ValidationOptions {
  int64_t every_steps = 0;    // 0: off
  int32_t max_sentences = 0;  // 0: all
  // Sentences, spread evenly over the validation corpus, that are translated for BLEU; 0: none.
  int32_t bleu_sentences = 0;
  BleuTokenizer bleu_tokenizer = BleuTokenizer::k13a;
  ValidationMetric metric = ValidationMetric::kNll;  // the others need bleu_sentences
};

struct CheckpointOptions {
  int64_t every_steps = 0;    // 0: not by steps
  double every_minutes = 30;  // longest time between the beginnings of two saves; 0: not by time
  int32_t keep_last = 3;      // 0: all
  int64_t keep_every = 0;     // also saves and keeps steps that are multiples of this; 0: none
  int32_t keep_best = 1;      // also keeps this many of the best by validation (ValidationOptions::metric)
  bool save_at_end = true;
  int64_t memory_every_steps = 0;  // between copies in the memory of hosts (checkpoint/memory_copies.h); 0: none
  std::string memory_folder = "/dev/shm";
};

// A step whose loss is far above those before it is skipped (run_health.h).
struct LossSpikeOptions {
  double deviations = 0;  // how many standard deviations above the mean; 0: off
  int64_t window = 100;   // updates over which mean and deviation are taken
};

struct HealthOptions {
  LossSpikeOptions loss_spike;
  // After this many skipped steps in a row (not finite, or spikes) the run goes back to its last good checkpoint. If it
  // must then go back to the same checkpoint again, it ends.
  int32_t skipped_steps = 10;
};

// The depth instruments (instruments/depth_recorder.h).
struct DepthOptions {
  bool enabled = true;
  int64_t dense_steps = 100;   // every step before this one is recorded
  int32_t per_decade = 20;     // later records per tenfold increase of the step; 0: none
  int32_t probe_tokens = 128;  // capacity of each side of the probe batch; 0: no probe
};

struct TrainOptions {
  uint64_t seed = 1;
  std::string run_directory;
  std::string train_data;  // prefix of a prepared corpus
  std::string validation_data;
  ModelOptions model;
  TrainingPrecision precision = TrainingPrecision::kAuto;
  int weight_gradient_batch = 1;  // kernels/cuda_host/cublas_matmul.h
  BatchOptions batch;
  PipelineOptions pipeline;
  OptimizerOptions optimizer;
  std::vector<std::string> frozen;  // patterns of names of parameters that are not updated (ModelPlan::frozen)
  RateOptions rate;
  StopOptions stop;
  ValidationOptions validation;
  CheckpointOptions checkpoint;
  HealthOptions health;
  DepthOptions depth;
  int32_t log_every_steps = 1;  // steps between records of the stages' times (one small exchange)
  // The temperature T for sampling corpora (runtime/data/sampling_order.h) in epoch 0, 1, …; the last one also holds
  // for all later epochs. Empty: 1.
  std::vector<double> sampling_temperature;
  SpecAugment spec_augment;             // for speech, in training
  std::optional<TokenMasking> masking;  // for an encoder alone
  double max_left_out = 0.9;            // a run does not start if a larger share of training samples is too long

  // Whether a validation that is among the best also saves a checkpoint. Patience ends a run behind its best model.
  bool saves_best() const { return checkpoint.every_steps > 0 || (stop.patience > 0 && checkpoint.save_at_end); }
};

}  // namespace hadal
