#include "runtime/compute_thread.h"

#include <omp.h>

#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

}  // namespace

void PrepareComputeThread() {
  omp_set_num_threads(1);
  FlushSubnormals();
}

}  // namespace hadal
