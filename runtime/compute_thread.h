// Settings that must be the same on every thread that computes:
//
// 1. Subnormal floats count as zero (x86: MXCSR's FTZ and DAZ; Arm: FPCR's FZ). A gradient that vanishes over 2,500
//    sublayers reaches 1e-38 and slows every product that reads it: a Post-LN step of 500L-500L took ten times as long.
//    Such numbers change no weight, but with different modes on different threads the last bits would depend on the
//    layout.
// 2. The thread has an alternate stack for signal handlers, whose frame (about 11 KB with AVX-512 and AMX) must not
//    depend on what a library leaves of the current one. Every handler of this program is installed with SA_ONSTACK.
#pragma once

#include <csignal>
#include <cstddef>
#include <memory>

namespace hadal {

// An alternate stack for one thread's signal handlers.
class SignalStack {
 public:
  SignalStack();  // allocates it; throws std::bad_alloc
  void Install();
  // Restores what the thread had before. REQUIRES: called by the thread that has installed it.
  void Remove();

 private:
  const size_t bytes_;
  const std::unique_ptr<char[]> memory_;
  stack_t before_ = {};
};

// Must be called once on every thread that runs kernels. Workers of a ThreadTeam call it themselves.
void PrepareComputeThread();
// PrepareComputeThread with a stack that another thread has allocated, and that the caller must Remove: if an
// allocation failed on a starting thread, the process would end.
void PrepareComputeThreadOn(SignalStack& stack);

}  // namespace hadal
