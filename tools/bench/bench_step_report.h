// The results of `hadal bench step`, and their output as text or as JSON for scripts (tests/gpu/step_bench).
//
// Thread safety: plain values, pure functions.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "layers/model_options.h"
#include "tools/bench/bench_step.h"
#include "tools/bench/step_flops.h"

namespace hadal {

inline constexpr int kStepParts = 7;
inline constexpr const char* kStepPartNames[kStepParts] = {"forward",       "recompute", "backward", "wait",
                                                           "communication", "optimizer", "other"};

struct BenchStepMeasurement {
  // What was measured.
  ModelOptions model;
  int64_t parameters = 0;
  int ranks = 1, threads = 1;
  std::string device;  // its name; "" for the CPU
  int64_t target_tokens = 0;
  StepFlops flops;

  // Measured times. Repeat i of a step and repeat i of the limit form a pair.
  std::vector<double> step_seconds;                    // [repeats] the slowest rank's
  std::vector<std::vector<double>> parts[kStepParts];  // [part][rank][repeats]
  // The ways in which the GEMM limit runs the products, and the times of each; empty if it was not measured.
  std::vector<std::string> ways;
  std::vector<std::vector<double>> limit_seconds, limit_attention_seconds;  // [ways][repeats] the ranks' mean
  double limit_flops = 0;                                                   // of all ranks

  // On a device.
  std::vector<double> launches;        // [ranks] of the last step
  std::vector<double> eager_seconds;   // steps without graphs; empty if the run used none
  std::vector<double> eager_launches;  // [ranks] of the last step without graphs
  std::vector<double> graph_bytes;     // [ranks]

  std::vector<double> peak_rss_bytes, arena_bytes, plan_bytes;  // [ranks]
};

// The fastest way of running the products: the limit.
struct FastestLimit {
  size_t way = 0;
  double seconds = 0, attention_seconds = 0;  // medians
  std::vector<double> shares;                 // limit / step of each pair, ascending
};
// REQUIRES: a limit was measured.
FastestLimit FastestLimitOf(const BenchStepMeasurement& measured);

void PrintBenchStepText(const BenchStepOptions& options, const BenchStepMeasurement& measured, std::ostream& out);
void PrintBenchStepJson(const BenchStepOptions& options, const BenchStepMeasurement& measured, std::ostream& out);

}  // namespace hadal
