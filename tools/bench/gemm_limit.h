// The GEMM limit of a training step: the time that the matrix products which the step executes need, and nothing else.
// Its share of the step's time says how far the step is from the best that its products allow.
//
// On a CPU oneDNN multiplies, attention's products among them (host_gemm_limit.h). On a GPU the step's own calls are
// made once more (device_gemm_limit.h), without attention, which is one kernel there and no product.
// There are several ways to run the same products; the limit is the fastest.
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

  // In words; at least one.
  virtual const std::vector<std::string>& ways() const = 0;
  // REQUIRES: way < ways().size().
  virtual GemmLimitTimes Run(size_t way) = 0;
  // Floating-point operations of one Run, once there was one.
  virtual double flops() const = 0;
};

}  // namespace hadal
