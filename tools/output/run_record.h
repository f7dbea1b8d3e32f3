// Reads a run back from disk for reports: RUN/metrics.jsonl, RUN/config.resolved.textproto and RUN/trace.
//
// The inverse of metrics_jsonl.h. It ignores unknown events and keys, and a last line truncated by a crash. What a run
// did not record is absent, never zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/options/grid_shape.h"
#include "pipeline/schedule/schedule.h"
#include "runtime/metrics_sink.h"
#include "tools/config/resolved_config.h"

namespace hadal {

struct ValidationRecord {
  int64_t step = 0;
  double nll = 0;
  std::optional<double> bleu;
  std::optional<double> wer;  // word error rate, errors / words; only in runs of speech
};

struct TextRecord {
  int64_t step = 0;
  std::string text;
};

// The layout of the run on its ranks, from its config.
struct LayoutRecord {
  ScheduleKind schedule = ScheduleKind::k1F1B;
  ScheduleShape shape;                                 // of one pipeline, with the whole step's micro-batches
  int replicas = 1;                                    // of the pipeline
  int outstanding_sends = 2;                           // messages that a channel may have in flight
  int recompute_every = 0;                             // sublayers per recomputed segment; 0: no recomputation
  Placement placement = Placement::kReplicasTogether;  // of the ranks of stages and replicas
};

struct RunRecord {
  std::string directory;
  std::string name;                                      // last component of the directory
  std::string model;                                     // RunInfo::model
  int64_t parameters = 0;                                // their number
  int32_t source_vocabulary = 0, target_vocabulary = 0;  // 0: not recorded
  int32_t frame_width = 0;                               // of speech
  int ranks = 1;
  int replicas = 1;
  bool free_links = false;             // ScheduleShape::free_links: messages take no time
  int threads = 1;                     // per rank
  int32_t encoder_sublayers = 0;       // the first ones of a DepthMetrics series
  std::optional<int> recompute_every;  // of the last start; absent: an older run
  std::string start_layout;            // RunInfo::layout of the last start
  std::vector<StepMetrics> steps;  // with the fields that summaries and comparisons need: the numbers of time and loss
  std::vector<size_t> starts;      // ascending: indices of the first step of each start; may be steps.size()
  // Index of the first step after the last change of ranks, replicas, threads, recomputation or start_layout; may be
  // steps.size().
  size_t layout_begins = 0;
  std::vector<ValidationRecord> validations;  // of the last validation set
  std::vector<TextRecord> warnings;
  std::vector<TextRecord> diagnoses;
  std::vector<EffectiveValue> config;  // every field; empty: no readable config
  std::optional<LayoutRecord> layout;  // absent: no readable config
  std::string trace_path;              // the latest trace of the last layout; empty: none
  std::string finish;                  // the reason of its end; empty: it has not ended by itself
  std::string failure;                 // the error that ended its last start, from rank 0's log; empty: none

  int cores() const { return ranks * threads; }
};

// Errors: NotFound or DataLoss with the path; InvalidArgument if the run has no step or a line is too long.
absl::StatusOr<RunRecord> ReadRun(const std::string& directory);

}  // namespace hadal
