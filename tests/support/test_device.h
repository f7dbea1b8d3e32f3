// The device that tests of the device path run on: the emulated one, or a GPU. Which, is decided by what the program
// links (test_device_emulated.cc, tests/gpu/test_device_gpu.cc), so that one test text serves both.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/device.h"

namespace hadal::testing {

// `seed`: of the emulated device's order of threads; a GPU has its own. Not null: aborts where there is no device.
std::unique_ptr<Device> MakeTestDevice(uint64_t seed);

}  // namespace hadal::testing
