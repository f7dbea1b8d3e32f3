// What a person may choose about a training run, as plain values (the config schema stops at tools/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers/model_options.h"
#include "pipeline/plan/decoder_options.h"
#include "pipeline/plan/grid_shape.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {

// How a run computes. kAuto: in bf16 on a GPU where the method has that, else in fp32; kTf32 and kBf16 need a GPU.
enum class TrainingPrecision { kAuto, kFp32, kTf32, kBf16 };

struct BatchOptions {
  int32_t micro_batches = 4;     // M, micro-batches a step (gradient accumulation)
  int32_t source_tokens = 1024;  // capacity of one micro-batch, </s> counted; not read without an encoder
  int32_t target_tokens = 1024;
};

// Whether a device's work is launched as graphs (graph_cache.h).
enum class GraphMode : int32_t {
  kAuto,  // where there is a device
  kOff,
};

// How what ranks with a device exchange goes from one device to the other.
enum class Transport : int32_t {
  kAuto,  // by NCCL where that can be, else through the host
  kNccl,
  kHost,  // through pinned memory and the host's communicator
};

struct PipelineOptions {
  int32_t stages = 0;    // S; 0: ranks / replicas
  int32_t replicas = 1;  // R, pipelines that train side by side, each on its share of a step's micro-batches
  Placement placement = Placement::kReplicasTogether;
  bool shard_optimizer_state = true;  // each slice's moments on one replica only (ZeRO-1)
  int32_t chunks = 1;                 // v, chunks a rank (interleaved schedule)
  ScheduleKind schedule = ScheduleKind::k1F1B;
  // First sublayer of each chunk but the first, in order of depth; empty: balanced by cost.
  std::vector<int32_t> split;
  int32_t outstanding_sends = 2;  // k, messages a channel may have under way
  int32_t recompute_every = 0;    // recomputation every k sublayers; 0: off
  // A rank's arena must fit, or the run is refused. 0: none asked for; a run's limit is then a rank's share of what is
  // free (launch/train/rank_device.h).
  int64_t memory_limit_bytes = 0;
  bool recompute_auto = false;        // in place of recompute_every what fits memory_limit_bytes (memory_fit.h)
  double wait_timeout_seconds = 600;  // deadline of every wait for a peer
  // Of a rank's state, what may be copied aside just before an update so that a checkpoint being written does not hold
  // it up; 0: waits.
  int64_t save_buffer_bytes = 0;
  int32_t threads = 0;  // CPU threads a rank; 0: the rank's share of the host's CPUs
  GraphMode graphs = GraphMode::kAuto;
  int64_t bucket_rows = 128;  // fewest rows that a device's micro-batches are rounded up to (row_bucket.h)
  Transport transport = Transport::kAuto;
  // Beam search at validations (decode/validation_bleu.h), whose memory is a part of every rank's arena; none: no BLEU.
  std::optional<DecoderOptions> decoder;
};

struct OptimizerOptions {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double clip_norm = 0;  // 0: off
};

enum class RateSchedule : int32_t {
  kInverseSqrt,  // warm-up, then lr·sqrt(W/t)
  kPolynomial,   // warm-up, then lr·(1 − progress)^power + end
  kTFixup,       // lr·sqrt(4000 / (4000 + t)), no warm-up
};

// fairseq's conventions: update k (1-based) uses rate(k − 1).
struct RateOptions {
  RateSchedule schedule = RateSchedule::kInverseSqrt;
  double peak = 5e-4;
  // 0 allowed. A fraction of the run has become updates before (tools/config/run_options.h).
  double warmup_updates = 4000;
  double warmup_initial_rate = 1e-7;
  double end_rate = 0;  // polynomial
  double power = 1;     // polynomial
};

struct StopOptions {
  int64_t steps = 0;  // 0: no limit (one of the limits must be set)
  double epochs = 0;
  double minutes = 0;
  int32_t patience = 0;  // validations without improvement of the best nll; 0: off
};

struct ValidationOptions {
  int64_t every_steps = 0;    // 0: off
  int32_t max_sentences = 0;  // 0: all
  // Sentences of the validation corpus, taken evenly, that are translated for BLEU; 0: none.
  int32_t bleu_sentences = 0;
};

struct CheckpointOptions {
  int64_t every_steps = 0;  // 0: only at the end
  int32_t keep_last = 3;    // 0: all
  int64_t keep_every = 0;   // additionally keep multiples
  bool save_at_end = true;
};

// A step whose loss is far above those before it is skipped (loss_spike.h).
struct LossSpikeOptions {
  double deviations = 0;  // z; 0: off
  int64_t window = 100;   // updates
};

struct HealthOptions {
  LossSpikeOptions loss_spike;
  // So many skipped in a row, not finite or spikes: back to the last checkpoint, and the second time the end.
  int32_t skipped_steps = 10;
};

// The instruments that see the depth (instruments/depth_recorder.h).
struct DepthOptions {
  bool enabled = true;
  int64_t dense_steps = 100;   // the first steps, all recorded
  int32_t per_decade = 20;     // later records, from each step to its tenfold; 0: none
  int32_t probe_tokens = 128;  // capacity of the probe batch on either side; 0: no probe
};

struct TrainOptions {
  uint64_t seed = 1;
  std::string run_directory;
  std::string train_data;  // prefix of a prepared corpus
  std::string validation_data;
  ModelOptions model;
  TrainingPrecision precision = TrainingPrecision::kAuto;
  BatchOptions batch;
  PipelineOptions pipeline;
  OptimizerOptions optimizer;
  RateOptions rate;
  StopOptions stop;
  ValidationOptions validation;
  CheckpointOptions checkpoint;
  HealthOptions health;
  DepthOptions depth;
  int32_t log_every_steps = 1;  // steps between records of the stages' times (one small exchange)
  double max_left_out = 0.9;    // share of the training samples that may be too long; with more the run does not start
};

}  // namespace hadal
