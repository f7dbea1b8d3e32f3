// The manifest: one JSON file, written last, that makes a directory a checkpoint.
//
// It says what was saved (progress, settings, parameters), where (files, with the slices of each in file order), and
// what the bytes must be (CRC32C of every file, of its header, and of every slice, so that a rank verifies what it
// reads without reading other ranks' data). Its own last field is the CRC32C of everything before it.
//
//   {"format": 1, "plan_hash": …, "slice_elements": 1048576, "attempt": "…", "time": "2026-01-31T12:00:00Z",
//   "time_unix_seconds": …,
//    "progress": {"step": 1000, "update": 1000, "seed": 1, …}, "has_moments": true, "model": {…}, "config": "…",
//    "parameters": [["encoder.layers.0.fc1.weight", 2048, 512], ["encoder.layers.0.fc1.bias", 2048], …],
//    "attachments": [{"name": "vocabulary.model", "bytes": …, "crc32c": …}],
//    "files": [{"name": "rank_00000.safetensors", "bytes": …, "crc32c": …, "header_bytes": …, "header_crc32c": …,
//               "slices": [[parameter, slice, crc32c of weight, of adam_m, of adam_v], …]}, …],
//    "manifest_crc32c": …}
//
// Parsing is suspicious: size and depth are bounded, duplicate keys, unknown state, names that are no plain file names,
// and shapes that the listed slices do not cover exactly once are refused; nothing is allocated from a declared number.
// Thread safety: plain values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pipeline/checkpoint/checkpoint_state.h"
#include "pipeline/loss_spike.h"
#include "runtime/data/epoch_start.h"

namespace hadal {

inline constexpr int32_t kCheckpointFormat = 1;
inline constexpr char kManifestName[] = "manifest.json";
inline constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;
// Stands before the manifest's own checksum, its last field.
inline constexpr char kManifestCrcField[] = ",\n\"manifest_crc32c\": ";

// Where a run stands. Everything a resumed run needs beside the slices.
struct TrainingProgress {
  int64_t step = 0;        // steps done: data and random numbers; always advances
  int64_t update = 0;      // updates applied: Adam's t, learning rate, BranchNorm's t
  uint64_t seed = 0;       // the key of every Philox stream
  double epochs_done = 0;  // whole epochs + share of the current one's samples
  // Of the current epoch: the data's order needs the step alone, but finds its place sooner with it.
  EpochStart epoch_start;
  int64_t samples_seen = 0;
  int64_t target_tokens_seen = 0;
  double training_seconds = 0;                                      // time spent in steps, all attempts together
  double validation_nll = std::numeric_limits<double>::infinity();  // of these very weights; infinity: not measured
  double best_nll = std::numeric_limits<double>::infinity();        // best so far; infinity: none yet
  int64_t best_step = -1;
  int32_t validations_without_improvement = 0;
  // The step's validation was left out, since the run was asked to stop: whoever goes on begins with it.
  bool validation_due = false;
  LossTrend loss_trend;
  bool operator==(const TrainingProgress&) const = default;
};

// One slice in a file: CRC32C of the state kinds the file holds.
struct WrittenSlice {
  int32_t parameter = 0;
  int64_t slice = 0;
  std::array<std::optional<uint32_t>, kStateKinds.size()> crc32c;  // by StateKind
  bool operator==(const WrittenSlice&) const = default;
};

// What a rank reports about its file; ranks send it to rank 0 as text.
struct WrittenFile {
  std::string name;  // "rank_00000.safetensors"
  int64_t bytes = 0;
  uint32_t crc32c = 0;       // of the whole file
  int64_t header_bytes = 0;  // the 8-byte length included
  uint32_t header_crc32c = 0;
  std::vector<WrittenSlice> slices;  // in file order; kinds of one slice in StateKind order
  bool operator==(const WrittenFile&) const = default;

  std::string ToString() const;
  // Errors: DataLoss.
  static absl::StatusOr<WrittenFile> Parse(std::string_view text);
};

// A small file carried along so that a checkpoint is complete by itself: the vocabularies.
struct AttachedFile {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  bool operator==(const AttachedFile&) const = default;
};

struct CheckpointManifest {
  TrainingProgress progress;
  uint64_t plan_hash = 0;
  std::string attempt;         // which launch wrote it
  absl::Time time;             // when, to the second
  std::string config_text;     // the resolved configuration, text format
  std::string model_settings;  // JSON object, see ModelSettingsJson
  bool has_moments = true;     // false: weights only (averages); cannot be resumed, can be translated with
  std::vector<CheckpointParameter> parameters;
  std::vector<WrittenFile> files;
  std::vector<AttachedFile> attachments;

  std::string ToString() const;
  // Parses and checks everything that can be checked without the files: CheckCoverage included.
  // Errors: DataLoss; FailedPrecondition when the format is newer than this binary.
  static absl::StatusOr<CheckpointManifest> Parse(std::string_view text);

  // OK when every slice of every parameter is listed exactly once with its weight, and with both moments or,
  // has_moments being false, neither. Errors: DataLoss naming the first slice that is missing, doubled or unknown.
  absl::Status CheckCoverage() const;
};

}  // namespace hadal
