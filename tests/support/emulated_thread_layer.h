// The thread layer on the CPU (kernels/cuda/thread_layer.h includes this file under a C++ compiler): indices, barriers,
// shared memory, loads and stores call the KernelEmulator that runs the kernel; arithmetic is the C++ library's, with
// the errors that NVIDIA documents.
#pragma once

#include <bit>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "kernels/cuda/thread_layer.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::cuda {

HADAL_DEVICE int ThreadIndex() { return KernelEmulator::Current().thread(); }
HADAL_DEVICE int ThreadsInBlock() { return KernelEmulator::Current().shape().threads; }
HADAL_DEVICE int64_t BlockX() { return KernelEmulator::Current().block_x(); }
HADAL_DEVICE int64_t BlockY() { return KernelEmulator::Current().block_y(); }
HADAL_DEVICE int64_t BlocksX() { return KernelEmulator::Current().shape().blocks_x; }

using Where = std::source_location;
inline void Barrier(const Where& where = Where::current()) { KernelEmulator::Current().Barrier(where); }
template <typename T>
T ShuffleFrom(T value, int lane, const Where& where = Where::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(
      static_cast<Bits>(KernelEmulator::Current().Shuffle(std::bit_cast<Bits>(value), lane % kWarp, where)));
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
  KernelEmulator::Current().CheckAccess(AccessKind::kLoad, from.address, sizeof(T), alignof(T), where);
  return *from.address;
}
template <typename T>
void Store(DevicePointer<T> to, std::type_identity_t<T> value, const Where& where = Where::current()) {
  KernelEmulator::Current().CheckAccess(AccessKind::kStore, to.address, sizeof(T), alignof(T), where);
  *to.address = value;
}
template <typename T>
Vector16 LoadVector(DevicePointer<T> from, const Where& where = Where::current()) {
  KernelEmulator::Current().CheckAccess(AccessKind::kLoad, from.address, sizeof(Vector16), alignof(Vector16), where);
  Vector16 value;
  std::memcpy(&value, from.address, sizeof(value));
  return value;
}
template <typename T, typename Vector = Vector16>
void StoreVector(DevicePointer<T> to, const Vector& value, const Where& where = Where::current()) {
  KernelEmulator::Current().CheckAccess(AccessKind::kStore, to.address, sizeof(Vector), alignof(Vector), where);
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
  KernelEmulator::Of(stream).Run(shape, [=] { kernel(args...); });  // by copy, because the launch may be recorded
}

}  // namespace hadal::cuda
