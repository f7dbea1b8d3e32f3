// Settings that must be the same on every thread that computes:
//
// 1. Subnormal floats count as zero (x86: MXCSR's FTZ and DAZ; Arm: FPCR's FZ). A gradient that vanishes over 2,500
//    sublayers reaches 1e-38 and slows every product that reads it: a step of Post-LN with 500 layers in each stack
//    took ten times as long. Such numbers change no weight, but if threads differed in this mode, the last bits of a
//    result would depend on which thread computes it.
// 2. The thread has an alternate stack for signal handlers. A handler's frame takes about 11 KB with AVX-512 and AMX,
//    and a library may have left less of the thread's own stack. hadal installs every handler with SA_ONSTACK.
#pragma once

#include <csignal>
#include <cstddef>
#include <memory>

namespace hadal {

// An alternate stack for one thread's signal handlers.
class SignalStack {
 public:
  SignalStack();  // allocates it; throws std::bad_alloc
  // Makes it the calling thread's alternate stack.
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
// As PrepareComputeThread, but installs `stack`, which another thread has constructed, because an allocation that fails
// on a starting thread would end the process. The calling thread must call stack.Remove() before it ends.
void PrepareComputeThreadOn(SignalStack& stack);

}  // namespace hadal
