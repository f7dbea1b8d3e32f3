// What a planned run needs of a cluster beside its devices: the hosts' memory, and the time and space of checkpoints.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace hadal {

struct PlanReport;
struct TrainOptions;

struct ClusterOptions {
  int ranks_per_node = 0;          // ranks fill nodes in order; 0: all are on one
  double write_gb_per_second = 1;  // 1e9 bytes that all ranks together write
  double grace_seconds = 300;      // from a signal to the end of the job; default: launch/slurm/train.sbatch's
};

struct ClusterNeeds {
  ClusterOptions options;
  int nodes = 1;
  int64_t host_bytes = 0;         // the fullest node's, without the driver's and the page cache
  int64_t checkpoint_bytes = 0;   // of one, without names and checksums
  double checkpoint_seconds = 0;  // to write it, at options.write_gb_per_second
  double interval_seconds = 0;    // between two; 0: not known, or only at the end
  int64_t kept_checkpoints = -1;  // at most, with the one that is being written; -1: without a bound known here
  // At most from a signal to the end: a step (not counted if its time is not known), the rest of a save, a save.
  double end_seconds = 0;

  int64_t kept_bytes() const { return kept_checkpoints < 0 ? -1 : kept_checkpoints * checkpoint_bytes; }
  bool fits_grace() const { return end_seconds <= options.grace_seconds; }
};

// Returns what the plan in `report` needs if it is trained with the settings of `run`. Pure.
ClusterNeeds ClusterNeedsOf(const PlanReport& report, const TrainOptions& run, const ClusterOptions& options);

// Returns four lines of text: hosts, saving, storage, signal.
std::string ToText(const ClusterNeeds& needs);
// Returns the object "cluster" of the plan's JSON; an unbounded number of kept checkpoints (-1) is null.
nlohmann::ordered_json ToJson(const ClusterNeeds& needs);

}  // namespace hadal
