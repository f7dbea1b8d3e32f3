// The thread layer: the only interface between a kernel's body and the machine.
//
//   indices       ThreadIndex, ThreadsInBlock, BlockX, BlockY, BlocksX
//   barriers      Barrier (the block), ShuffleXor and ShuffleFrom (the warp)
//   memory        HADAL_SHARED declares an array of the block, Shared<T> passes it on; Load and Store dereference a
//                 DevicePointer; LoadVector and StoreVector access 16 bytes at once (StoreVector also 8), StoreWord
//                 four bytes of a shared 16
//   arithmetic    MulAdd, SquareRoot, Exp, FastExp, Log, MulWide
//   Launch        starts a kernel on a stream
//
// Under nvcc the thread layer is CUDA. Under a C++ compiler it is the tests' emulator (tests/support), which runs the
// same source on the CPU, one fiber per thread, and checks what CUDA leaves undefined. The .cu files are therefore also
// C++. Rules for kernels: every thread of a block reaches the same Barrier, every lane of a warp the same shuffle. No
// thread returns before a barrier at which others wait. There are deliberately no floating-point atomics.
// Numerics: contraction is off in both builds (-fmad=false); a fused multiply-add is written MulAdd. Division and
// square root are correctly rounded in both. Exp and Log are those of each library, so only code without them has equal
// bits in both builds.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/first_launches.h"
#include "kernels/cuda/qualifiers.h"
#include "runtime/check.h"

namespace hadal::cuda {

inline constexpr int kWarp = 32;

// Sixteen bytes: the widest access of a thread.
struct alignas(16) Vector16 {
  uint32_t word[4];
};

// Eight bytes: four BFloat16.
struct alignas(8) Vector8 {
  uint32_t word[2];
};

// Called before each launch, on the host.
template <typename Kernel>
void NoteLaunch(StreamHandle stream, Kernel* kernel) {
  stream.CountLaunch();
  if (stream.firsts != nullptr) stream.firsts->Note(reinterpret_cast<uintptr_t>(kernel));
}

#if defined(__CUDACC__)

struct LaunchShape {
  int64_t blocks_x = 1, blocks_y = 1;
  int threads = kWarp;  // of a block; REQUIRES: a multiple of kWarp
};

HADAL_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
HADAL_DEVICE int ThreadsInBlock() { return static_cast<int>(blockDim.x); }
HADAL_DEVICE int64_t BlockX() { return blockIdx.x; }
HADAL_DEVICE int64_t BlockY() { return blockIdx.y; }
HADAL_DEVICE int64_t BlocksX() { return gridDim.x; }

HADAL_DEVICE void Barrier() { __syncthreads(); }
template <typename T>
HADAL_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}
template <typename T>
HADAL_DEVICE T ShuffleFrom(T value, int lane) {
  return __shfl_sync(0xFFFFFFFFu, value, lane);
}

#define HADAL_SHARED(T, name, count) __shared__ __align__(16) T name[count]
template <typename T>
using Shared = T*;
HADAL_DEVICE Vector16 LoadVector(const float* from) { return *reinterpret_cast<const Vector16*>(from); }
HADAL_DEVICE void StoreVector(float* to, const Vector16& value) { *reinterpret_cast<Vector16*>(to) = value; }

HADAL_DEVICE void StoreWord(Vector16* to, int word, uint32_t value) { to->word[word] = value; }

template <typename T>
HADAL_DEVICE std::remove_const_t<T> Load(DevicePointer<T> from) {
  return *from.address;
}
template <typename T>
HADAL_DEVICE void Store(DevicePointer<T> to, T value) {
  *to.address = value;
}
template <typename T>
HADAL_DEVICE Vector16 LoadVector(DevicePointer<T> from) {
  return *reinterpret_cast<const Vector16*>(from.address);
}
// In assembly, because nvcc splits a store through a pointer into 4-byte ones where another path of the kernel stores
// the same bytes one by one.
template <typename T>
HADAL_DEVICE void StoreVector(DevicePointer<T> to, const Vector16& value) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to.address)), "r"(value.word[0]), "r"(value.word[1]), "r"(value.word[2]),
                 "r"(value.word[3])
               : "memory");
}
template <typename T>
HADAL_DEVICE void StoreVector(DevicePointer<T> to, const Vector8& value) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};"
               :
               : "l"(__cvta_generic_to_global(to.address)), "r"(value.word[0]), "r"(value.word[1])
               : "memory");
}

HADAL_DEVICE float MulAdd(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HADAL_DEVICE double MulAdd(double a, double b, double c) { return __fma_rn(a, b, c); }
HADAL_DEVICE float SquareRoot(float x) { return __fsqrt_rn(x); }
HADAL_DEVICE float Exp(float x) { return expf(x); }
// Relative error about (2 + |x|) · 2^-23. Results below 2^-126 become 0; __expf has extra instructions for these.
HADAL_DEVICE float FastExp(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.442695041f));
  return power;
}
HADAL_DEVICE float Log(float x) { return logf(x); }
HADAL_DEVICE uint32_t BitsOf(float x) { return __float_as_uint(x); }
HADAL_DEVICE float FloatOf(uint32_t bits) { return __uint_as_float(bits); }

// Must be called after a launch. Aborts on an error, because an impossible launch is a bug. The error may be an earlier
// kernel's; with CUDA_LAUNCH_BLOCKING=1 it is this one's.
inline void CheckLaunch(cudaError_t status, const void* kernel, const LaunchShape& shape) {
  if (status == cudaSuccess) return;
  const char* name = nullptr;
#if CUDART_VERSION >= 12030
  if (cudaFuncGetName(&name, kernel) != cudaSuccess) name = nullptr;
#endif
  CheckFailed(__FILE__, __LINE__,
              std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ") at the launch of " +
                  (name == nullptr ? "a kernel" : name) + ", " + std::to_string(shape.blocks_x) + " x " +
                  std::to_string(shape.blocks_y) + " blocks of " + std::to_string(shape.threads) + " threads");
}

template <typename... P, typename... A>
void Launch(StreamHandle stream, const LaunchShape& shape, void (*kernel)(P...), const A&... args) {
  NoteLaunch(stream, kernel);
  const dim3 blocks(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y));
  kernel<<<blocks, static_cast<unsigned>(shape.threads), 0, stream.stream>>>(args...);
  CheckLaunch(cudaGetLastError(), reinterpret_cast<const void*>(kernel), shape);
}

#endif

// Returns the 64-bit product of two 32-bit numbers.
HADAL_DEVICE uint64_t MulWide(uint32_t a, uint32_t b) { return static_cast<uint64_t>(a) * b; }

}  // namespace hadal::cuda

#if !defined(__CUDACC__)
#include "emulated_thread_layer.h"  // of tests/support, which is in the include path of the kernels' C++ build
#endif
