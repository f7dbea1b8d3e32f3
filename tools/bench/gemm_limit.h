// The GEMM limit of a training step: the time that the step's matrix products take without anything else. Its share of
// the step's time shows how close the step is to the best that its products allow.
//
// On a CPU oneDNN runs the products, including attention's (host_gemm_limit.h). On a GPU the step's own library calls
// are repeated (device_gemm_limit.h), without attention, which is a fused kernel there.
// The same products can be run in several ways; the limit is the fastest.
// Threads: one. Blocking.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hadal {

struct GemmLimitTimes {
  double seconds = 0;            // of all products
  double attention_seconds = 0;  // of attention's among them
};

class GemmLimit {
 public:
  virtual ~GemmLimit() = default;

  // Descriptions of the ways; at least one.
  virtual const std::vector<std::string>& ways() const = 0;
  // REQUIRES: way < ways().size().
  virtual GemmLimitTimes Run(size_t way) = 0;
  // Floating-point operations of one Run.  REQUIRES: Run was called.
  virtual double flops() const = 0;
};

}  // namespace hadal
