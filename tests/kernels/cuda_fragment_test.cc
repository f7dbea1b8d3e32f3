// The emulator's tensor core and matrix loads against the plain definition, through the registers that PTX documents.
#include "kernels/cuda/fragment.h"

#include "gtest/gtest.h"
#include "tests/support/kernel_device.h"
#include "tests/support/kernel_emulator.h"
#include "tests/support/random_inputs.h"

namespace hadal::cuda {
namespace {

constexpr int kRows = 16, kDepth = 16, kColumns = 8;

uint32_t Bits(float x) { return hadal::testing::Stored<BFloat16>(x).bits; }

// One warp; a [16, 16], b [16, 8], c [16, 8] += a·b. Each lane takes its elements from the documented places one by
// one.
HADAL_KERNEL void ProductKernel(const float* a, const float* b, float* c) {
  const int g = ThreadIndex() / 4, t = ThreadIndex() % 4;
  const auto pair = [](float low, float high) { return Bits(low) | Bits(high) << 16; };
  FragmentA of_a;
  for (int i = 0; i < 4; ++i) {
    const float* row = a + (g + 8 * (i % 2)) * kDepth + 2 * t + 8 * (i / 2);
    of_a.word[i] = pair(row[0], row[1]);
  }
  FragmentB of_b;
  for (int i = 0; i < 2; ++i) {
    const float* column = b + (2 * t + 8 * i) * kColumns + g;
    of_b.word[i] = pair(column[0], column[kColumns]);
  }
  FragmentC of_c;
  const auto place = [&](int i) { return (g + 8 * (i / 2)) * kColumns + 2 * t + i % 2; };
  for (int i = 0; i < 4; ++i) of_c.v[i] = c[place(i)];
  MultiplyAdd(of_c, of_a, of_b);
  for (int i = 0; i < 4; ++i) c[place(i)] = of_c.v[i];
}

std::vector<float> Values(int64_t count, uint32_t seed) {
  return hadal::testing::Rounded<BFloat16>(hadal::testing::NormalValues(count, seed));
}

TEST(CudaFragmentTest, MultiplyAddIsTheProduct) {
  const std::vector<float> a = Values(kRows * kDepth, 1), b = Values(kDepth * kColumns, 2);
  std::vector<float> c = Values(kRows * kColumns, 3);
  std::vector<double> expected(c.begin(), c.end());
  for (int i = 0; i < kRows * kColumns; ++i) {
    for (int k = 0; k < kDepth; ++k) {
      expected[i] += static_cast<double>(a[i / kColumns * kDepth + k]) * b[k * kColumns + i % kColumns];
    }
  }
  KernelEmulator emulator(1);
  Launch(emulator.stream(), {.threads = kWarp}, ProductKernel, a.data(), b.data(), c.data());
  EXPECT_TRUE(hadal::testing::NearReference(c, expected, 16, 4));
}

// values[matrix, row, column] = 64·matrix + 8·row + column; lane i offers row i. loaded[lane, matrix].
HADAL_KERNEL void MatricesKernel(uint32_t* loaded, bool transposed) {
  HADAL_SHARED(Vector16, rows, kWarp);
  const auto lane = static_cast<uint32_t>(ThreadIndex());
  Vector16 row;
  for (uint32_t c = 0; c < 4; ++c) row.word[c] = (8 * lane + 2 * c) | (8 * lane + 2 * c + 1) << 16;
  rows[lane] = row;
  Barrier();
  const FourMatrices m = transposed ? LoadMatricesTransposed(rows + lane) : LoadMatrices(rows + lane);
  for (int i = 0; i < 4; ++i) loaded[4 * lane + i] = m.word[i];
}

TEST(CudaFragmentTest, MatricesComeAsDocumented) {
  for (const bool transposed : {false, true}) {
    std::vector<uint32_t> loaded(kWarp * 4);
    KernelEmulator emulator(1);
    Launch(emulator.stream(), {.threads = kWarp}, MatricesKernel, loaded.data(), transposed);
    for (uint32_t lane = 0; lane < kWarp; ++lane) {
      const uint32_t g = lane / 4, t = lane % 4;
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t low = 64 * i + (transposed ? 16 * t + g : 8 * g + 2 * t);
        EXPECT_EQ(loaded[4 * lane + i], low | (low + (transposed ? 8 : 1)) << 16)
            << "lane " << lane << ", matrix " << i;
      }
    }
  }
}

HADAL_KERNEL void DivergentKernel() {
  FragmentC c;
  if (ThreadIndex() == 3) return;
  MultiplyAdd(c, FragmentA{}, FragmentB{});
}

TEST(CudaFragmentDeathTest, TheWholeWarpMultiplies) {
  KernelEmulator emulator(1);
  EXPECT_DEATH(Launch(emulator.stream(), {.threads = kWarp}, DivergentKernel),
               "waits at a shuffle or fragment.*31 like it(.|\n)*thread 3 has returned");
}

}  // namespace
}  // namespace hadal::cuda
