// The device for tests of the device path: the emulated one or a GPU, depending on what the program links
// (test_device_emulated.cc, tests/gpu/test_device_gpu.cc), so that the same tests serve both.
#pragma once

#include "runtime/device.h"

namespace hadal::testing {

// `seed` determines the emulated device's order of threads; a GPU ignores it. Never null: aborts if there is no device.
std::unique_ptr<Device> MakeTestDevice(uint64_t seed);

}  // namespace hadal::testing
