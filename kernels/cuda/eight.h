// Eight contiguous elements in registers: the unit in which kernels load and store tensors.
//
// One 16-byte access holds eight BFloat16, two hold eight floats, and one Philox block has draws for eight elements.
// Loads widen to float; stores round to nearest even. kAligned: 16-byte accesses; `count` must be 8. Otherwise the
// first `count` ≤ 8 elements are accessed one by one, and the others read as 0.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

struct Eight {
  float v[8] = {};
};

HADAL_DEVICE float ToFloat(float x) { return x; }
HADAL_DEVICE float ToFloat(BFloat16 x) { return FloatOf(static_cast<uint32_t>(x.bits) << 16); }

// Rounds two floats to BFloat16, `low` in the lower half. A NaN becomes the quiet NaN 0x7FFF, as in hardware.
HADAL_DEVICE uint32_t RoundPair(float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  const auto round = [](float x) -> uint32_t {
    const uint32_t bits = BitsOf(x);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  };
  return round(low) | round(high) << 16;
#endif
}

template <typename T>
HADAL_DEVICE T FromFloat(float x);
template <>
HADAL_DEVICE float FromFloat<float>(float x) {
  return x;
}
template <>
HADAL_DEVICE BFloat16 FromFloat<BFloat16>(float x) {
  return {static_cast<uint16_t>(RoundPair(x, 0.0f))};
}

// Rounds x as if it were stored as T and loaded again; two elements at a time.
template <typename T>
HADAL_DEVICE void RoundTo(Eight& x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      const uint32_t pair = RoundPair(x.v[2 * i], x.v[2 * i + 1]);
      x.v[2 * i] = FloatOf(pair << 16);
      x.v[2 * i + 1] = FloatOf(pair & 0xFFFF0000u);
    }
  }
}

HADAL_DEVICE Eight EightOf(const Vector16& low, const Vector16& high) {
  Eight result;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) {
    result.v[i] = FloatOf(low.word[i]);
    result.v[i + 4] = FloatOf(high.word[i]);
  }
  return result;
}
HADAL_DEVICE Eight LoadEightAligned(DevicePointer<const float> from) {
  return EightOf(LoadVector(from), LoadVector(from + 4));
}
HADAL_DEVICE Eight LoadEightAligned(DevicePointer<const BFloat16> from) {
  const Vector16 all = LoadVector(from);
  Eight result;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) {
    result.v[2 * i] = FloatOf(all.word[i] << 16);
    result.v[2 * i + 1] = FloatOf(all.word[i] & 0xFFFF0000u);
  }
  return result;
}
HADAL_DEVICE void StoreEightAligned(DevicePointer<float> to, const Eight& value) {
  Vector16 low, high;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) {
    low.word[i] = BitsOf(value.v[i]);
    high.word[i] = BitsOf(value.v[i + 4]);
  }
  StoreVector(to, low);
  StoreVector(to + 4, high);
}
HADAL_DEVICE void StoreEightAligned(DevicePointer<BFloat16> to, const Eight& value) {
  Vector16 all;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) all.word[i] = RoundPair(value.v[2 * i], value.v[2 * i + 1]);
  StoreVector(to, all);
}

// Stores four contiguous elements.
HADAL_DEVICE void StoreFourAligned(DevicePointer<float> to, const float* values) {
  StoreVector(to, Vector16{{BitsOf(values[0]), BitsOf(values[1]), BitsOf(values[2]), BitsOf(values[3])}});
}
HADAL_DEVICE void StoreFourAligned(DevicePointer<BFloat16> to, const float* values) {
  StoreVector(to, Vector8{{RoundPair(values[0], values[1]), RoundPair(values[2], values[3])}});
}

// Load or store eight floats in shared memory with two 16-byte accesses; `at` is a multiple of four from the block's
// start. If neighbouring threads have neighbouring eights, four lanes of every eight access their upper half first, so
// that eight lanes served together use all banks; with eight lower halves every second run of four banks would be used
// twice.
HADAL_DEVICE bool UpperHalfFirst() { return ThreadIndex() / 4 % 2 != 0; }
HADAL_DEVICE void StoreEightShared(const Shared<float>& at, const Eight& value) {
  const bool upper = UpperHalfFirst();
  Vector16 first, second;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) {
    first.word[i] = BitsOf(upper ? value.v[i + 4] : value.v[i]);
    second.word[i] = BitsOf(upper ? value.v[i] : value.v[i + 4]);
  }
  StoreVector(at + (upper ? 4 : 0), first);
  StoreVector(at + (upper ? 0 : 4), second);
}
HADAL_DEVICE Eight LoadEightShared(const Shared<float>& at) {
  const bool upper = UpperHalfFirst();
  const Vector16 first = LoadVector(at + (upper ? 4 : 0)), second = LoadVector(at + (upper ? 0 : 4));
  Eight value;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) {
    value.v[i] = FloatOf(upper ? second.word[i] : first.word[i]);
    value.v[i + 4] = FloatOf(upper ? first.word[i] : second.word[i]);
  }
  return value;
}

template <bool kAligned, typename T>
HADAL_DEVICE Eight LoadEight(DevicePointer<T> from, int count) {
  if constexpr (kAligned) {
    return LoadEightAligned(from);
  } else {
    Eight result;
    HADAL_UNROLL for (int i = 0; i < 8; ++i) {
      if (i < count) result.v[i] = ToFloat(Load(from + i));
    }
    return result;
  }
}

template <bool kAligned, typename T>
HADAL_DEVICE void StoreEight(DevicePointer<T> to, const Eight& value, int count) {
  if constexpr (kAligned) {
    StoreEightAligned(to, value);
  } else {
    HADAL_UNROLL for (int i = 0; i < 8; ++i) {
      if (i < count) Store(to + i, FromFloat<T>(value.v[i]));
    }
  }
}

// A thread's eight columns of one row, in a launch of ShapeOfEights.
struct EightColumns {
  int64_t row, column;
  int count;  // existing columns; 0: none
};
inline constexpr int kEightThreads = 256;
HADAL_DEVICE EightColumns ThisEight(int64_t rows, int64_t width) {
  const int64_t eights = (width + 7) / 8, i = BlockX() * kEightThreads + ThreadIndex(), column = 8 * (i % eights);
  const int64_t left = i / eights < rows ? width - column : 0;
  return {i / eights, column, static_cast<int>(left < 8 ? left : 8)};
}
inline LaunchShape ShapeOfEights(int64_t rows, int64_t width) {
  return {.blocks_x = (rows * ((width + 7) / 8) + kEightThreads - 1) / kEightThreads, .threads = kEightThreads};
}

}  // namespace hadal::cuda
