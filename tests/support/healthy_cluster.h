// The facts and measurements of four healthy ranks on two hosts, which a test changes to check the doctor's findings.
#pragma once

#include "gtest/gtest.h"
#include "hwy/detect_targets.h"
#include "tools/doctor/doctor.h"

namespace hadal {

struct Cluster {
  std::vector<DoctorFacts> ranks;
  std::vector<RankMeasurements> measured;

  Cluster() {
    for (int rank = 0; rank < 4; ++rank) {
      ranks.push_back({{.rank = rank,
                        .host = rank < 2 ? "n1" : "n2",
                        .cpus = rank % 2 == 0 ? std::vector<int>{0, 1} : std::vector<int>{2, 3},
                        .online_cpus = 4,
                        .threads = 2,
                        .instruction_sets = HWY_AVX3 | HWY_AVX2,
                        .binary_crc32c = 7,
                        .open_files_limit = 4096,
                        .shared_memory_bytes = int64_t{1} << 30},
                       {}});
      const bool leaves = rank % 2 == 1;  // ranks 1 and 3
      measured.push_back({.next_bytes_per_second = leaves ? 1e9 : 5e9,
                          .next_latency_seconds = 1e-6,
                          .ring_bytes_per_second = leaves ? 1e9 : 4e9,
                          .gflops = 100,
                          .write_bytes_per_second = 2e8,
                          .sees_others = true,
                          .lock_excludes = true});
    }
    PlaceOnHosts(ranks);
  }

  std::vector<Finding> Findings() const { return FindFaults(ranks, measured); }
  // The only finding; fails the test if there are several.
  Finding Only() const {
    const std::vector<Finding> findings = Findings();
    if (findings.size() == 1) return findings[0];
    ADD_FAILURE() << findings.size() << " findings";
    for (const Finding& finding : findings) ADD_FAILURE() << finding.text;
    return {};
  }
};

// A cluster in which each rank has its own GPU.
struct GpuCluster : Cluster {
  GpuCluster() {
    for (int rank = 0; rank < 4; ++rank) {
      ranks[rank].gpu = {.asked = true,
                         .device = {.model = "NVIDIA A100-SXM4-80GB",
                                    .architecture = "sm_80",
                                    .bus = rank % 2 == 0 ? "0000:07:00.0" : "0000:0f:00.0",
                                    .identity = absl::StrCat("GPU-", rank),
                                    .memory_bytes = int64_t{80} << 30,
                                    .free_bytes = int64_t{79} << 30,
                                    .driver = 13000,
                                    .runtime = 13000,
                                    .cublas = 130002},
                         .nccl = 22809};
      measured[rank].gpu_flops = 2.5e14;
      measured[rank].gpu_copy_bytes_per_second = 1.6e12;
    }
  }
  void LoseGpu(int rank, const std::string& why, bool absent) {
    ranks[rank].gpu = {.asked = true, .why_none = why, .absent = absent};
    measured[rank].gpu_flops = measured[rank].gpu_copy_bytes_per_second = 0;
  }
};

}  // namespace hadal
