// How one model is divided over the S ranks (stages) of a pipeline, each with v chunks; G = S·v chunks in all
// (schedule/schedule.h): where it is cut, which instructions each rank runs, how many micro-batches each chunk holds;
// and which replica of the pipeline this is, with its share of the step.
//
// A pure function of (model plan, batch, pipeline options, ranks, rank, resources): every rank of a replica computes
// the same layout, `hadal plan` prints it, and the checker has proved its schedule before the first step.
// PipelineOptions keep the values that the user set; code that builds or runs the pipeline reads the resolved values in
// the layout.
// Replicas differ only in their share of a step: replica r of R takes the micro-batches [share(r), share(r + 1)) of the
// step's list of M, share(r) = ⌈r·M / R⌉. The range is consecutive, so that micro-batch m uses slot m modulo peak_live
// on every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/border.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "pipeline/layout/sum_tree.h"
#include "pipeline/options/decoder_options.h"
#include "pipeline/options/grid_shape.h"
#include "pipeline/options/recompute_run.h"
#include "pipeline/options/train_options.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {

// Consecutive members of a list.
struct Share {
  int first = 0;
  int count = 0;
};
// Returns the share of replica `replica` of `replicas` in a list of `count` members.
Share ShareOf(int count, int replicas, int replica);

// The largest micro-batch that the buffers must hold.
ActivationCapacity CapacityOf(const ModelOptions& model, const BatchOptions& batch);
// The sentence length, in rows, that cost estimates assume.
inline constexpr double kTypicalSentenceRows = 32;
// The share of an encoder's rows that enter its head when it stands alone.
inline constexpr double kTypicalMaskedShare = 0.15;

// The resources of the ranks, as opposed to what the user sets (PipelineOptions). A run detects them
// (tools/train/train_start.h); `hadal plan` uses the defaults. The same on every rank.
struct RankResources {
  bool device_transfers = false;  // messages are in device memory (launch/transport_choice.h), not in host memory
  bool free_links = false;        // messages take no time (ScheduleShape)
  bool trains = true;             // false: the layout only divides the model for decoding, which sends other messages
  // Limit for a rank's buffers; 0: none. Only MakeFittingLayout (memory_fit.h) reads it.
  int64_t memory_limit_bytes = 0;
};

// Of recomputation that was chosen to fit a limit (memory_fit.h).
struct RecomputeFit {
  double gap = 0;                      // ≥ the share of a rank's repeated work that a better plan could avoid
  std::vector<int64_t> bytes_without;  // [S] of a stage that recomputes nothing
};

struct PipelineLayout {
  GridShape grid;
  int replica = 0;                    // the replica whose layout this is
  bool shard_optimizer_state = true;  // each slice's moments on one replica only (ZeRO-1)
  int step_micro_batches = 1;         // M of the step, all replicas together
  int sum_groups = 1;                 // G, in which the step's micro-batches are added (sum_tree.h)
  ScheduleShape shape;                // of this replica: shape.micro_batches = share().count
  // The schedule that the user set; with recomputation, WithOnePending (schedule.h) of it.
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int outstanding_sends = 2;      // k, messages that a channel may have in flight
  bool device_transfers = false;  // RankResources::device_transfers
  int64_t save_buffer_bytes = 0;  // limit for the buffer into which a save copies state before an update overwrites it
  ActivationCapacity capacity;    // CapacityOf
  bool graphs = true;             // work is launched as graphs on a device
  bool overlap_weight_gradients = false;  // PipelineOptions
  int64_t bucket_rows = 128;              // least size to which a device's micro-batches are rounded up, in rows
  std::optional<DecoderOptions> decoder;  // beam search at validations, its sources no longer than training's
  DecodeCapacity decode_capacity;         // the decoder's sizes, if `decoder` is set
  std::vector<int32_t> borders;           // [chunks + 1]: global chunk g holds sublayers [borders[g], borders[g + 1])
  std::vector<double> costs;              // [sublayers] multiply-adds of a forward at full capacity
  std::vector<RecomputeRun> recompute;    // by SetRecompute
  std::vector<bool> recomputed;           // [sublayers] whether the backward repeats the forward; by SetRecompute
  RecomputeFit recompute_fit;
  std::vector<RankProgram> programs;  // [S]
  // For each chunk, the most micro-batches that are live (in memory; schedule_check.h) at once, and the most of them
  // whose input half has not ended.
  std::vector<std::vector<int>> peak_live, peak_input;  // [S][v]
  std::vector<int> peak_pending;                        // [S] weight halves pending at once; 0: backwards are whole
  double analytic_bubble = 0;  // share of a step in which ranks idle, by replay (schedule_replay.h) with `costs`

  int32_t first_sublayer(int rank, int chunk) const { return borders[shape.GlobalChunk(rank, chunk)]; }
  int32_t last_sublayer(int rank, int chunk) const { return borders[shape.GlobalChunk(rank, chunk) + 1]; }
  // The sublayers of a rank's chunks, ascending.
  std::vector<int32_t> SublayersOf(int rank) const;
  // The number of slots for pending weight halves (schedule.h) that a chunk uses; 0 if its backward is whole.
  int pending_slots(int rank, int chunk) const { return shape.IsFirst(rank, chunk) ? 0 : peak_pending[rank]; }
  // This replica's part of the step's list of micro-batches, and where its groups end in it.
  Share share() const { return ShareOf(step_micro_batches, grid.replicas, replica); }
  std::vector<GroupEnd> group_ends() const { return GroupEnds(step_micro_batches, sum_groups, grid.replicas, replica); }
  // The rank, within the pipeline, that holds a sublayer.
  int RankOfSublayer(int32_t sublayer) const;
  // The rank that owns a parameter's state: that of the first sublayer that uses the parameter.
  int OwnerOf(const ModelPlan& plan, int32_t parameter) const;
};

// Returns the layout of the replica that world rank `rank` of `ranks` belongs to.
// Errors: InvalidArgument with a remedy (more chunks than sublayers, bad split, 1f1b with chunks, ranks that are not
// stages × replicas, fewer micro-batches than replicas, replicas that do not divide the groups, …); those of
// CheckSchedule.
absl::StatusOr<PipelineLayout> MakePipelineLayout(const ModelPlan& plan, const BatchOptions& batch,
                                                  const PipelineOptions& options, int ranks, int rank = 0,
                                                  const RankResources& resources = {});
// Sets which sublayers are recomputed: `runs` in any order, of which neighbours with the same length become one. Does
// not change analytic_bubble; memory_fit.h does.
// REQUIRES: `runs` recompute nothing, or the layout was made with options that recompute (WithOnePending).
void SetRecompute(const ModelPlan& plan, std::vector<RecomputeRun> runs, PipelineLayout& pipeline);
// Returns the layout of another replica of the same pipeline.
absl::StatusOr<PipelineLayout> LayoutOfReplica(PipelineLayout pipeline, int replica);

// The edges that cross the cut in front of global chunk g > 0. Where one is a history (the outputs of all layers before
// the cut, for methods that read them again: layers/README.md), Edge::known is the number of its entries that the rank
// of g already has from its own previous chunk.
std::vector<Edge> EdgesInFrontOf(const ModelPlan& plan, const PipelineLayout& pipeline, int global_chunk);
// Edge::known of the first of them; 0 in front of the first chunk and behind the last.
int64_t KnownInFrontOf(const ModelPlan& plan, const PipelineLayout& pipeline, int global_chunk);

inline constexpr int64_t kMessageHeaderBytes = 64;  // keeps the edges aligned
// Bytes of a message (exchange/channel.h) with the edges of a border or their gradients, and a header, at full
// capacity. `width`: d_model.
int64_t MessageBytes(std::span<const Edge> edges, bool gradients, const ActivationCapacity& capacity, int64_t width);

// Multiply-adds of each sublayer's forward for one micro-batch at full capacity, with `length` keys per attention
// query. Reading a history, which is bound by memory, counts as the multiply-adds that take as long; not at all without
// `with_history`.
std::vector<double> SublayerCosts(const ModelPlan& plan, const ActivationCapacity& capacity, double length,
                                  bool with_history = true);

}  // namespace hadal
