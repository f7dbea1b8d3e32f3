// The emulator's tensor core, which kernels/cuda/fragment.h includes under a C++ compiler: the lanes of a warp bring
// their registers, and one call computes from all of them.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/cuda/fragment.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::cuda {

using Lanes = std::array<void*, kWarp>;

inline float LowerHalf(uint32_t word) { return FloatOf(word << 16); }
inline float UpperHalf(uint32_t word) { return FloatOf(word & 0xFFFF0000u); }

struct ProductLane {
  FragmentC* c;
  const FragmentA* a;
  const FragmentB* b;
};

// Returns sum + Σ a[i] · b[i].
inline float EightProductsAndSum(float sum, const float* a, const float* b, int64_t b_stride) {
  double terms[9];
  terms[8] = sum;
  double largest = std::abs(terms[8]);
  for (int i = 0; i < 8; ++i) {
    terms[i] = static_cast<double>(a[i]) * b[i * b_stride];
    largest = std::max(largest, std::abs(terms[i]));
  }
  if (largest == 0.0 || !(largest <= std::numeric_limits<float>::max())) {
    for (int i = 0; i < 8; ++i) sum += static_cast<float>(terms[i]);
    return sum;
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  const double unit = std::ldexp(1.0, exponent - 1 - 23), units = 1.0 / unit;  // powers of two: exact
  double total = 0;
  for (const double term : terms) total += std::trunc(term * units);
  total *= unit;
  const auto rounded = static_cast<float>(total);
  return std::abs(rounded) > std::abs(total) ? std::nextafter(rounded, 0.0f) : rounded;
}

inline void MultiplyAddTogether(const Lanes& lanes) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto& mine = *static_cast<const ProductLane*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + 8 * (i % 2), column = 2 * t + 8 * (i / 2);
      a[row][column] = LowerHalf(mine.a->word[i]), a[row][column + 1] = UpperHalf(mine.a->word[i]);
    }
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * t + 8 * i;
      b[row][g] = LowerHalf(mine.b->word[i]), b[row + 1][g] = UpperHalf(mine.b->word[i]);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    FragmentC& c = *static_cast<const ProductLane*>(lanes[lane])->c;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      for (const int k : {0, 8}) c.v[i] = EightProductsAndSum(c.v[i], &a[row][k], &b[k][column], 8);
    }
  }
}

inline void MultiplyAdd(FragmentC& c, const FragmentA& a, const FragmentB& b, const Where& where = Where::current()) {
  ProductLane mine = {&c, &a, &b};
  KernelEmulator::Current().Together(&mine, MultiplyAddTogether, where);
}

struct MatrixLane {
  Vector16 row;
  FourMatrices loaded;
};
inline uint32_t Element(const Lanes& lanes, int matrix, int row, int column) {
  const Vector16& values = static_cast<const MatrixLane*>(lanes[8 * matrix + row])->row;
  return values.word[column / 2] >> (16 * (column % 2)) & 0xFFFF;
}
template <bool kTransposed>
void LoadMatricesTogether(const Lanes& lanes) {
  for (int lane = 0; lane < kWarp; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = kTransposed ? Element(lanes, i, 2 * t, g) : Element(lanes, i, g, 2 * t);
      const uint32_t high = kTransposed ? Element(lanes, i, 2 * t + 1, g) : Element(lanes, i, g, 2 * t + 1);
      static_cast<MatrixLane*>(lanes[lane])->loaded.word[i] = low | high << 16;
    }
  }
}

inline FourMatrices LoadMatrices(const Shared<Vector16>& row, const Where& where = Where::current()) {
  MatrixLane mine = {row[0], {}};
  KernelEmulator::Current().Together(&mine, LoadMatricesTogether<false>, where);
  return mine.loaded;
}
inline FourMatrices LoadMatricesTransposed(const Shared<Vector16>& row, const Where& where = Where::current()) {
  MatrixLane mine = {row[0], {}};
  KernelEmulator::Current().Together(&mine, LoadMatricesTogether<true>, where);
  return mine.loaded;
}

}  // namespace hadal::cuda
