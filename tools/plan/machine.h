// Machine: the planner's model of a cluster of equal nodes, in SI units. Made from a description
// (configs/machine.proto), with its efficiency factors applied.
//
// One device runs one rank. Ranks fill nodes in order (process_grid.h: replicas of a stage are neighbours).
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "runtime/device.h"

namespace hadal {

// Bandwidth and latency of messages from one device to another.
struct LinkRate {
  double bytes_per_second = 0;  // achieved; 0: transfers are free
  double latency_seconds = 0;

  double HeldSeconds(double bytes) const { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }
};

// The element type of matrix products; determines bytes per element and peak rate, and the kind of device: only GPUs
// have bf16.
enum class Precision { kFp32, kBf16 };

struct Machine {
  std::string name;
  int nodes = 1;
  int devices_per_node = 1;
  int64_t memory_bytes = 0;    // of a device, available for buffers
  int64_t reserved_bytes = 0;  // of a device, beside these
  Precision precision = Precision::kFp32;
  double peak_flops = 0;       // per second and device; 0: not described, a profile must give it
  double matmul_flops = 0;     // achieved by large products
  double attention_flops = 0;  // achieved by attention's products
  int matmul_units = 1;
  int matmul_tile = 128;
  double memory_bytes_per_second = 0;  // achieved
  double kernel_seconds = 0;
  double gap_seconds = 0;           // of the host, for each forward and backward
  double call_seconds = 0;          // of the host, for each send or receive, or group of them
  double grouped_call_seconds = 0;  // of the host, for each in a group
  LinkRate intra_node, inter_node;
  bool overlap = true;

  int devices() const { return nodes * devices_per_node; }
  DeviceKind device() const { return precision == Precision::kBf16 ? DeviceKind::kCuda : DeviceKind::kCpu; }
};

// Errors: InvalidArgument if the description lacks a required number (memory) or reserves more memory than there is.
absl::StatusOr<Machine> MakeMachine(const config::Machine& description);
// Errors: those of LoadMessage (config_loading.h) and MakeMachine, with the file's name.
absl::StatusOr<Machine> LoadMachine(const std::string& file);

}  // namespace hadal
