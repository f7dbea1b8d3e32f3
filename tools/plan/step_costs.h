// StepCosts gives the costs of a step's parts on one device; the planner needs no other numbers about speed.
// Implementations: the roofline of a described machine (cost_files.h) and a profile measured on a real one
// (profiled_costs.h).
// Threads: const, pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "configs/machine.pb.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "runtime/device.h"

namespace hadal {

// Bandwidth and latency of messages from one device to another.
struct LinkRate {
  double bytes_per_second = 0;  // achieved; 0: transfers are free
  double latency_seconds = 0;

  // Seconds for which a message of `bytes` occupies the link; the message arrives latency_seconds after that.
  double HeldSeconds(double bytes) const { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }
};

// The element type of matrix products; determines bytes per element, peak rate and the kind of device: a machine with
// bf16 is taken for GPUs, one with fp32 for CPUs.
enum class Precision { kFp32, kBf16 };

// Machine: the planner's model of a cluster of equal nodes, in SI units. Made from a description
// (configs/machine.proto), with its efficiency factors applied.
//
// One device runs one rank. Ranks fill nodes in order (which ranks are neighbours: pipeline/options/grid_shape.h).
struct Machine {
  std::string name;
  int nodes = 1;
  int devices_per_node = 1;
  int64_t memory_bytes = 0;    // of a device, available for buffers
  int64_t reserved_bytes = 0;  // of a device, besides memory_bytes: for the driver and libraries
  Precision precision = Precision::kFp32;
  double peak_flops = 0;               // per second and device; 0: not described, a profile must give it
  double matmul_flops = 0;             // achieved by large products
  double attention_flops = 0;          // achieved by attention's products
  int matmul_units = 1;                // multiprocessors or cores, which compute tiles of a product in parallel
  int matmul_tile = 128;               // edge of a tile, in elements
  double memory_bytes_per_second = 0;  // achieved
  double kernel_seconds = 0;           // shortest time from one kernel's start to the next one's
  double gap_seconds = 0;              // StepCosts::GapSeconds
  double call_seconds = 0;             // StepCosts::CallSeconds
  double grouped_call_seconds = 0;     // StepCosts::GroupedCallSeconds
  LinkRate intra_node, inter_node;
  bool overlap = true;  // whether transfers overlap computation

  int devices() const { return nodes * devices_per_node; }
  DeviceKind device() const { return precision == Precision::kBf16 ? DeviceKind::kCuda : DeviceKind::kCpu; }
};

// Errors: those of LoadMessage (config_loading.h); InvalidArgument, with the file's name, if the description lacks a
// required number (memory) or reserves more memory than there is.
absl::StatusOr<Machine> LoadMachine(const std::string& file);

// Seconds of one micro-batch in one sublayer. The head's forward includes computing its gradients.
struct SublayerSeconds {
  double forward = 0;
  double recompute = 0;  // 0 without recomputation
  double backward = 0;

  double sum() const { return forward + recompute + backward; }
};

class StepCosts {
 public:
  virtual ~StepCosts() = default;

  // The seconds of each sublayer, for micro-batches of `capacity`.
  // Errors: NotFound if the source (a profile) has no costs for such micro-batches; names the sizes that it has.
  virtual absl::StatusOr<std::vector<SublayerSeconds>> Sublayers(const ModelPlan& plan,
                                                                 const ActivationCapacity& capacity,
                                                                 bool recompute) const = 0;
  // Seconds of the end of a step (zeroing gradients, their norm, Adam) on a rank that holds gradients of `held`
  // elements and updates `updated` of them.
  virtual double UpdateSeconds(double held, double updated) const = 0;
  // Seconds in which Muon orthogonalises a matrix (kernels/orthogonalize.h).
  virtual double OrthogonalizeSeconds(const ParameterRecord& matrix, int32_t steps) const = 0;
  // Seconds to add one element of another replica's gradient.
  virtual double SumSeconds() const = 0;
  // The link within a node, or between nodes.
  virtual LinkRate Link(bool leaves_node) const = 0;
  // Seconds that a rank's device waits for its host before each forward and backward.
  virtual double GapSeconds() const = 0;
  // Seconds that a rank's host needs for a single send or receive of any size, or for a group of them (CallSeconds),
  // and the seconds that each send or receive in a group adds (GroupedCallSeconds). A rank makes its calls one after
  // the other.
  virtual double CallSeconds() const = 0;
  virtual double GroupedCallSeconds() const = 0;
  // Whether transfers overlap computation.
  virtual bool overlap() const = 0;
  // The largest number of parts in which the backward of a step's last micro-batch in a chunk (pipeline/stage/chunk.h)
  // sends gradients to the other replicas; each part has at least one sublayer.
  virtual int32_t backward_parts() const = 0;
  // Peak of one rank's matrix products, in operations per second; the reference for utilisation.
  virtual double peak_flops() const = 0;
  // The source of the numbers, for reports.
  virtual std::string Describe() const = 0;
};

}  // namespace hadal
