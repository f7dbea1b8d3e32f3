// Measures a set of ranks: the links between neighbours one at a time and all at once, each rank's speed and its GPU's,
// and the shared file system.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace hadal {

// The measurements of one rank. With one rank the fields next_… and ring_… are 0.
struct RankMeasurements {
  double next_bytes_per_second = 0;  // to the next rank, with all other links idle: ranks take turns
  double next_latency_seconds = 0;   // half a round trip of 8 bytes, the fastest of many
  // To the next rank while every rank sends to its next one, as in an all-reduce.
  double ring_bytes_per_second = 0;
  double gflops = 0;                  // fp32 products with the rank's threads, 1e9 operations/s, all ranks at once
  double write_bytes_per_second = 0;  // into the run directory, with fsync, on all ranks at once
  double rename_seconds = 0;          // create, fsync and rename of a small file
  bool sees_others = false;           // this rank sees every other rank's file in the directory
  bool lock_excludes = false;  // locks work: this rank could not take a lock that rank 0 held (rank 0: could take it)
  std::string file_trouble;    // the error in the directory; empty: none
  double gpu_flops = 0;        // bf16 products on its GPU, operations/s, all ranks at once; 0: no GPU, or gpu_trouble
  double gpu_copy_bytes_per_second = 0;
  std::string gpu_trouble;  // why the GPU could not be measured; empty: it was, or there is none
};

struct ProbeOptions {
  std::string directory = ".";  // where the run will write: files are measured there
  int64_t message_bytes = int64_t{4} << 20;
  int rounds = 8;  // messages per measurement of a link
  int64_t file_bytes = int64_t{16} << 20;
  absl::Duration timeout = absl::Seconds(60);  // of each wait for a peer
  Device* device = nullptr;                    // this rank's GPU; null: none (other ranks may have one)
};

// Makes this rank's measurements. Blocking: a collective call of all ranks. Errors: those of Communicator::Wait
// (the peer and the direction are named).
absl::StatusOr<RankMeasurements> Probe(Communicator& communicator, const Stream& stream, const ProbeOptions& options);

// Compares two measurements of one rank. Returns `later`, with the better of the two values of each speed and time.
RankMeasurements Fastest(const RankMeasurements& earlier, RankMeasurements later);

// One line of JSON and back. Errors: Internal if `json` has no measurements.
std::string MeasurementsToJson(const RankMeasurements& measured);
absl::StatusOr<RankMeasurements> MeasurementsFromJson(const std::string& json);

}  // namespace hadal
