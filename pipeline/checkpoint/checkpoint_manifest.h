// The manifest of a checkpoint: one JSON file, written last. A directory is a checkpoint if it has a valid manifest.
//
// The manifest lists the contents (progress, settings, parameters), the files with their slices in order, and
// checksums: the CRC32C of every file, of its header and of every slice, so that a rank can verify its part without
// reading other ranks' data. The last field of the manifest is the CRC32C of everything before it.
//
//   {"format": 1, "plan_hash": …, "slice_elements": 1048576, "attempt": "…", "time": "2026-01-31T12:00:00Z",
//   "time_unix_seconds": …,
//    "progress": {"step": 1000, "update": 1000, "seed": 1, …}, "has_moments": true, "muon": true (or absent),
//    "model": {…}, "inputs": {…}, "config": "…",
//    "parameters": [["encoder.layers.0.fc1.weight", 2048, 512], ["encoder.layers.0.fc1.bias", 2048], …],
//    "attachments": [{"name": "vocabulary.model", "bytes": …, "crc32c": …}],
//    "files": [{"name": "rank_00000.safetensors", "bytes": …, "crc32c": …, "header_bytes": …, "header_crc32c": …,
//               "slices": [[parameter, slice, crc32c of weight, of adam_m, of adam_v], …]}, …],
//    "manifest_crc32c": …}
//
// The parser does not trust its input: it limits size and depth; rejects duplicate keys, unknown state kinds, names
// that are not plain file names, and shapes that the listed slices do not cover exactly once; and never allocates by a
// number from the file.
// Slices: the state of every slice of every parameter has a key without rank, stage or replica. The slice's owner
// writes it, and any rank of a later run can read it.
//
//   weight/<parameter name>/<slice>   float32 [elements of the slice]
//   adam_m/<parameter name>/<slice>   Adam's first moment, or Muon's momentum, same shape
//   adam_v/<parameter name>/<slice>   Adam's second moment, same shape; not of a parameter that Muon updates
//
// <slice> is a decimal number; slice k of a parameter holds its row-major elements [k·2^20, min((k+1)·2^20, elements)).
// Thread safety: plain values and pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/model_plan.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/input_kind.h"
#include "runtime/data/sampling_order.h"
#include "runtime/tensor.h"

namespace hadal {

class JsonFields;  // runtime/json_fields.h

inline constexpr int32_t kCheckpointFormat = 1;
inline constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;
// Precedes the value of the manifest's own checksum, its last field.
inline constexpr char kManifestCrcField[] = ",\n\"manifest_crc32c\": ";

enum class StateKind : int32_t { kWeight, kFirstMoment, kSecondMoment };
inline constexpr std::array kStateKinds = {StateKind::kWeight, StateKind::kFirstMoment, StateKind::kSecondMoment};

// Views of one slice's state in memory. Writers and readers skip the kinds whose view is empty.
struct SliceState {
  int32_t parameter = 0;                       // index in ModelPlan::parameters
  int64_t slice = 0;                           // index in the parameter
  Vector weight, first_moment, second_moment;  // each [elements of the slice], or empty

  const Vector& view(StateKind kind) const;
};

// Name and shape of one parameter, stored in the manifest so that tools need no config.
struct CheckpointParameter {
  std::string name;
  int64_t rows = 0;
  int64_t columns = 1;
  bool is_vector = false;  // exported as a one-dimensional tensor

  int64_t elements() const { return rows * columns; }
  int64_t slices() const { return (elements() + kSliceElements - 1) / kSliceElements; }
  // Elements of slice `slice`: 2^20, or the rest in the last one.  REQUIRES: 0 ≤ slice < slices().
  int64_t slice_elements(int64_t slice) const;
  bool operator==(const CheckpointParameter&) const = default;
};

// Lists the parameters of a model, in the plan's order.
std::vector<CheckpointParameter> DescribeParameters(const ModelPlan& plan);

// Returns OK if the two lists are equal, else FailedPrecondition with the first difference.
absl::Status CompareParameters(const std::vector<CheckpointParameter>& checkpoint,
                               const std::vector<CheckpointParameter>& model);

// Returns the key of a slice's state, e.g. "weight/decoder.layers.0.fc1.weight/0".
std::string StateKey(StateKind kind, const std::string& parameter_name, int64_t slice);

// Statistics of the losses of all applied updates so far, in nats per target token with label smoothing; recent losses
// have more weight (run_health.h).
struct LossTrend {
  int64_t losses = 0;  // their number
  double mean = 0;
  double variance = 0;
  bool operator==(const LossTrend&) const = default;
};

// The score of the validation after `step`, in the metric by which the run chooses its best checkpoints.
struct ScoredStep {
  int64_t step = -1;
  double score = 0;
  bool operator==(const ScoredStep&) const = default;
};

// The progress of a run: everything besides the slices that a resumed run needs.
struct TrainingProgress {
  int64_t step = 0;        // steps done; determines data and random numbers; always advances
  int64_t update = 0;      // updates applied: Adam's t, learning rate
  uint64_t seed = 0;       // the key of every Philox stream
  double epochs_done = 0;  // whole epochs + the share of the current epoch's samples that have been read
  // How far the training data have been read, and which data these are. Checkpoints of older versions have neither.
  DataPlace place;
  DataIdentity training_data;
  int64_t samples_seen = 0;
  int64_t target_tokens_seen = 0;
  double training_seconds = 0;                                      // time spent in steps, in all attempts (starts)
  double validation_nll = std::numeric_limits<double>::infinity();  // of these weights; infinity: not measured
  DataIdentity validation_data;                                     // on which validation_nll and `best` were measured
  std::string validation_metric = "nll";  // of `best`: "nll", or "bleu" or "chrf" and how it is measured
  std::vector<ScoredStep> best;           // best first, of equal ones the earlier first; at most checkpoint.keep_best
  int32_t validations_without_improvement = 0;
  // Whether this step's validation was skipped or interrupted because the run was stopping. The resumed run does it
  // first.
  bool validation_due = false;
  LossTrend loss_trend;
  int32_t skipped_in_a_row = 0;  // steps without an update, this one and those before it: the weights may be the cause
  int64_t updates_before = 0;    // updates of the weights in the runs that this one was initialised from

  int64_t best_step() const { return best.empty() ? -1 : best.front().step; }
  bool IsAmongBest(int64_t which) const {
    return std::ranges::any_of(best, [&](const ScoredStep& scored) { return scored.step == which; });
  }
  // All updates that the weights have received: t of BranchNorm's branch gain (layers/model_options.h).
  int64_t growth_update() const { return updates_before + update; }
  bool operator==(const TrainingProgress&) const = default;
};

// One slice in a file: the CRC32C of each state kind that the file holds.
struct WrittenSlice {
  int32_t parameter = 0;
  int64_t slice = 0;
  std::array<std::optional<uint32_t>, kStateKinds.size()> crc32c;  // by StateKind
  bool operator==(const WrittenSlice&) const = default;
};

// Describes a rank's completed file; ranks send it to rank 0 as text.
struct WrittenFile {
  std::string name;  // "rank_00000.safetensors"
  int64_t bytes = 0;
  uint32_t crc32c = 0;       // of the whole file
  int64_t header_bytes = 0;  // including the 8-byte length
  uint32_t header_crc32c = 0;
  std::vector<WrittenSlice> slices;  // in file order; kinds of one slice in StateKind order
  bool operator==(const WrittenFile&) const = default;

  std::string ToString() const;
  // Errors: DataLoss.
  static absl::StatusOr<WrittenFile> Parse(std::string_view text);
};

// A small file (a vocabulary) stored with the checkpoint, so that the checkpoint is complete by itself.
struct AttachedFile {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  bool operator==(const AttachedFile&) const = default;
};

struct CheckpointManifest {
  TrainingProgress progress;
  uint64_t plan_hash = 0;
  std::string attempt;         // name of the start of the job (run_owner.h) that wrote the checkpoint
  absl::Time time;             // when it was written, to the second
  std::string config_text;     // the resolved configuration, text format
  std::string model_settings;  // JSON object, see ModelSettingsJson
  InputKind inputs;            // of the training data
  bool has_moments = true;     // false: weights only (averages); enough to translate, not to resume
  bool muon = false;           // whether the run's optimizer was Muon (ModelPlan::muon_steps)
  std::vector<CheckpointParameter> parameters;
  std::vector<WrittenFile> files;
  std::vector<AttachedFile> attachments;

  std::string ToString() const;
  // Parses the text and checks everything that needs no other file, including CheckCoverage.
  // Errors: DataLoss; FailedPrecondition if the format is newer than this binary.
  static absl::StatusOr<CheckpointManifest> Parse(std::string_view text);

  // Returns OK if every slice of every parameter is listed exactly once, with its weight and, if has_moments, both
  // moments (else neither); with `muon` some parameters have no second moment in any slice. Errors: DataLoss with the
  // first slice that is missing, duplicate or unknown.
  absl::Status CheckCoverage() const;
};

// Reads the object "inputs" of a manifest or of an export's settings; a missing field keeps its default.
InputKind ReadInputKind(JsonFields fields);

}  // namespace hadal
