#include "runtime/compute_thread.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
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

struct SignalStackOfThread : SignalStack {
  SignalStackOfThread() { Install(); }
  SignalStackOfThread(const SignalStackOfThread&) = delete;
  SignalStackOfThread& operator=(const SignalStackOfThread&) = delete;
  ~SignalStackOfThread() { Remove(); }
};

size_t StackBytes() {
  constexpr int64_t kLeastBytes = 64 * 1024;  // several times the frame of AVX-512 and AMX
  return static_cast<size_t>(std::max<int64_t>(sysconf(_SC_SIGSTKSZ), kLeastBytes));
}

}  // namespace

SignalStack::SignalStack() : bytes_(StackBytes()), memory_(new char[bytes_]) {}

void SignalStack::Install() {
  stack_t stack = {};
  stack.ss_sp = memory_.get();
  stack.ss_size = bytes_;
  HADAL_CHECK_EQ(sigaltstack(&stack, &before_), 0);
}

void SignalStack::Remove() { sigaltstack(&before_, nullptr); }

void PrepareComputeThreadOn(SignalStack& stack) {
  FlushSubnormals();
  stack.Install();
}

void PrepareComputeThread() {
  FlushSubnormals();
  thread_local const SignalStackOfThread signal_stack;
}

}  // namespace hadal
