#include "kernels/convert.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "tests/support/random_inputs.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int64_t kRows = 37, kColumns = 11;

std::vector<float> Rounded(std::vector<float> values) {
  for (float& value : values) value = Widened(RoundedToBFloat16(value));
  return values;
}

// Fp32 to bf16 and back, on the CPU and on a device.
TEST(ConvertTest, TheDevicesAgree) {
  const std::unique_ptr<Device> device = MakeTestDevice(/*seed=*/1);
  const std::vector<float> values = NormalValues(kRows * kColumns, 1);
  for (const Stream& stream : {Stream::Cpu(1), Stream::Cpu(3), Stream::On(*device, 1)}) {
    ArenaLayout layout;
    const ArenaSlice wide_slice = layout.Reserve<float>("wide", kRows * kColumns);
    const ArenaSlice narrow_slice = layout.Reserve<BFloat16>("narrow", kRows * kColumns);
    const Arena arena = *Arena::Allocate(layout, stream.device());
    const Matrix wide(arena.Get<float>(wide_slice), kRows, kColumns);
    const AnyMatrix narrow(arena.Get<BFloat16>(narrow_slice), kRows, kColumns, Storage::kBFloat16);
    stream.FromHost(wide.data, values.data(), kRows * kColumns * int64_t{sizeof(float)});
    Convert(stream, {.from = wide, .to = narrow});
    EXPECT_EQ(HostValues(stream, narrow), Rounded(values));
    stream.Clear(wide.data, kRows * kColumns * int64_t{sizeof(float)});
    Convert(stream, {.from = narrow, .to = wide});
    EXPECT_EQ(HostValues(stream, wide), Rounded(values));
  }
}

}  // namespace
}  // namespace hadal::testing
