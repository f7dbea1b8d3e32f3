#include "runtime/compute_thread.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/check.h"

namespace hadal {
namespace {

void FlushSubnormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON | 0x40 /* denormals are zero */);
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  asm volatile("msr fpcr, %0" ::"r"(control | (uint64_t{1} << 24)));
#endif
}

// The calling thread's alternate stack for signal handlers, as long as the thread lives.
class SignalStack {
 public:
  SignalStack() : memory_(static_cast<size_t>(std::max<int64_t>(sysconf(_SC_SIGSTKSZ), kLeastBytes))) {
    stack_t stack = {};
    stack.ss_sp = memory_.data();
    stack.ss_size = memory_.size();
    HADAL_CHECK_EQ(sigaltstack(&stack, &before_), 0);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  ~SignalStack() { sigaltstack(&before_, nullptr); }

 private:
  static constexpr int64_t kLeastBytes = 64 * 1024;  // several times the frame of AVX-512 and AMX
  std::vector<char> memory_;
  stack_t before_ = {};
};

}  // namespace

void PrepareComputeThread() {
  omp_set_num_threads(1);
  FlushSubnormals();
  thread_local const SignalStack signal_stack;
}

}  // namespace hadal
