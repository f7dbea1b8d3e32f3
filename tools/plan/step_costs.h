// StepCosts gives the costs of a step's parts on one device; the planner needs no other numbers about speed.
// Implementations: the roofline of a described machine (roofline_costs.h) and a profile measured on a real one
// (profiled_costs.h).
//
// Threads: const, pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "tools/plan/machine.h"

namespace hadal {

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
  // Errors: NotFound if the source has no costs for such micro-batches; names those it has.
  virtual absl::StatusOr<std::vector<SublayerSeconds>> Sublayers(const ModelPlan& plan,
                                                                 const ActivationCapacity& capacity,
                                                                 bool recompute) const = 0;
  // Seconds of the step's tail on a rank that holds gradients of `held` elements and updates `updated` of them.
  virtual double UpdateSeconds(double held, double updated) const = 0;
  // Seconds to add one element of another replica's gradient.
  virtual double SumSeconds() const = 0;
  // The link within a node, or between nodes.
  virtual LinkRate Link(bool leaves_node) const = 0;
  // Seconds that a rank's device waits for its host before each forward and backward.
  virtual double GapSeconds() const = 0;
  // Seconds of a rank's host for each send or receive of whatever size, or group of them; a rank makes them one after
  // the other. What each call in a group adds.
  virtual double CallSeconds() const = 0;
  virtual double GroupedCallSeconds() const = 0;
  // Whether transfers overlap computation.
  virtual bool overlap() const = 0;
  // The most parts in which a chunk's last backward sends its gradients; each part has at least one sublayer.
  virtual int32_t backward_parts() const = 0;
  // Peak of one rank's matrix products, in operations per second; the reference for utilisation.
  virtual double peak_flops() const = 0;
  // The source of the numbers, for reports.
  virtual std::string Describe() const = 0;
};

}  // namespace hadal
