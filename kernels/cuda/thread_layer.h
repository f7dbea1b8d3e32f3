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
// Under nvcc the thread layer is CUDA. Under a C++ compiler it is the executor (executor.h), which runs the same source
// on the CPU, one fiber per thread, and checks what CUDA leaves undefined. The .cu files are therefore also C++.
// Rules for kernels: every thread of a block reaches the same Barrier, every lane of a warp the same shuffle. No thread
// returns before a barrier at which others wait. There are deliberately no floating-point atomics.
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
#if !defined(__CUDACC__)
#include <array>
#include <bit>
#include <cstring>

#include "kernels/cuda/executor.h"
#endif

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

#else  // the executor

HADAL_DEVICE int ThreadIndex() { return Executor::Current().thread(); }
HADAL_DEVICE int ThreadsInBlock() { return Executor::Current().shape().threads; }
HADAL_DEVICE int64_t BlockX() { return Executor::Current().block_x(); }
HADAL_DEVICE int64_t BlockY() { return Executor::Current().block_y(); }
HADAL_DEVICE int64_t BlocksX() { return Executor::Current().shape().blocks_x; }

using Where = std::source_location;
inline void Barrier(const Where& where = Where::current()) { Executor::Current().Barrier(where); }
template <typename T>
T ShuffleFrom(T value, int lane, const Where& where = Where::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(
      static_cast<Bits>(Executor::Current().Shuffle(std::bit_cast<Bits>(value), lane % kWarp, where)));
}
template <typename T>
T ShuffleXor(T value, int mask, const Where& where = Where::current()) {
  return ShuffleFrom(value, ThreadIndex() % kWarp ^ mask, where);
}

template <typename T>
using Shared = SharedArray<T>;
#define HADAL_SHARED(T, name, count)   \
  static const char name##_identity{}; \
  const ::hadal::cuda::SharedArray<T> name(&name##_identity, count)
inline Vector16 LoadVector(const SharedArray<float>& from, const Where& where = Where::current()) {
  return std::bit_cast<Vector16>(from.LoadFour(where));
}
inline void StoreVector(const SharedArray<float>& to, const Vector16& value, const Where& where = Where::current()) {
  to.StoreFour(std::bit_cast<std::array<float, 4>>(value), where);
}
inline void StoreWord(const SharedArray<Vector16>& to, int word, uint32_t value,
                      const Where& where = Where::current()) {
  to.StoreWord(word, value, where);
}

template <typename T>
std::remove_const_t<T> Load(DevicePointer<T> from, const Where& where = Where::current()) {
  Executor::Current().CheckAccess(AccessKind::kLoad, from.address, sizeof(T), alignof(T), where);
  return *from.address;
}
template <typename T>
void Store(DevicePointer<T> to, std::type_identity_t<T> value, const Where& where = Where::current()) {
  Executor::Current().CheckAccess(AccessKind::kStore, to.address, sizeof(T), alignof(T), where);
  *to.address = value;
}
template <typename T>
Vector16 LoadVector(DevicePointer<T> from, const Where& where = Where::current()) {
  Executor::Current().CheckAccess(AccessKind::kLoad, from.address, sizeof(Vector16), alignof(Vector16), where);
  Vector16 value;
  std::memcpy(&value, from.address, sizeof(value));
  return value;
}
template <typename T, typename Vector = Vector16>
void StoreVector(DevicePointer<T> to, const Vector& value, const Where& where = Where::current()) {
  Executor::Current().CheckAccess(AccessKind::kStore, to.address, sizeof(Vector), alignof(Vector), where);
  std::memcpy(static_cast<void*>(to.address), &value, sizeof(value));
}

inline float MulAdd(float a, float b, float c) { return std::fma(a, b, c); }
inline double MulAdd(double a, double b, double c) { return std::fma(a, b, c); }
inline float SquareRoot(float x) { return std::sqrt(x); }
inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }

// These have the errors that NVIDIA documents for a GPU's functions, up or down by the bits of the argument: expf and
// logf one unit in the last place, ex2.approx 2^-22 of the value, with an argument rounded once. Exact where the GPU's
// are: exp(0), log(1), non-finite values.
inline int Direction(float x) { return static_cast<int>(BitsOf(x) * 2654435761u >> 30) % 3 - 1; }
inline float OneUnitOff(float value, float x) {
  const int direction = Direction(x);
  if (direction == 0 || value == 0.0f || !std::isfinite(value)) return value;
  return std::nextafter(value, direction > 0 ? INFINITY : -INFINITY);
}
inline float Exp(float x) { return x == 0.0f ? 1.0f : OneUnitOff(std::exp(x), x); }
inline float FastExp(float x) {
  constexpr float kLog2E = 1.4426950408889634f, kSmallestNormal = 0x1p-126f;
  const float power = std::exp2(x * kLog2E) * (x == 0.0f ? 1.0f : 1.0f + static_cast<float>(Direction(x)) * 0x1p-22f);
  return power < kSmallestNormal ? 0.0f : power;
}
inline float Log(float x) { return OneUnitOff(std::log(x), x); }

template <typename... P, typename... A>
void Launch(StreamHandle stream, const LaunchShape& shape, void (*kernel)(P...), const A&... args) {
  NoteLaunch(stream, kernel);
  Executor::Of(stream).Run(shape, [=] { kernel(args...); });  // by copy, because the launch may be recorded
}

#endif

// Returns the 64-bit product of two 32-bit numbers.
HADAL_DEVICE uint64_t MulWide(uint32_t a, uint32_t b) { return static_cast<uint64_t>(a) * b; }

}  // namespace hadal::cuda
