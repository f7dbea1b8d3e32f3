// What the parts of a step cost on one device: the planner's only question about speed. Two sources answer it: the
// roofline of a described machine (roofline_costs.h) and a profile measured on a real one (profiled_costs.h).
//
// Threads: const, pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "tools/plan/machine.h"

namespace hadal {

// Seconds of one micro-batch in one sublayer. The head's forward makes its gradients too.
struct SublayerSeconds {
  double forward = 0;
  double recompute = 0;  // 0 without activation checkpointing
  double backward = 0;

  double sum() const { return forward + recompute + backward; }
};

class StepCosts {
 public:
  virtual ~StepCosts() = default;

  // Of each sublayer, for micro-batches of `capacity`.
  // Errors: NotFound where this source knows nothing of such micro-batches (says of which it does).
  virtual absl::StatusOr<std::vector<SublayerSeconds>> Sublayers(const ModelPlan& plan,
                                                                 const ActivationCapacity& capacity,
                                                                 bool checkpointing) const = 0;
  // The tail of a step on a rank that holds gradients of `held` elements and updates `updated` of them.
  virtual double UpdateSeconds(double held, double updated) const = 0;
  // Adding one element of another replica's gradient.
  virtual double SumSeconds() const = 0;
  // Within a node, and between nodes.
  virtual LinkRate Link(bool leaves_node) const = 0;
  // Whether transfers run beside computation.
  virtual bool overlap() const = 0;
  // In how many parts at most a chunk's last backward lets its gradients go; every part has a sublayer at least.
  virtual int32_t backward_parts() const = 0;
  // Matrix products of one rank at their best, operations a second: what a step is measured against.
  virtual double peak_flops() const = 0;
  // Where the numbers are from, for people.
  virtual std::string Describe() const = 0;
};

}  // namespace hadal
