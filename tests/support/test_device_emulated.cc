#include "tests/support/emulated_device.h"
#include "tests/support/test_device.h"

namespace hadal::testing {

std::unique_ptr<Device> MakeTestDevice(uint64_t seed) { return std::make_unique<EmulatedDevice>(seed); }

}  // namespace hadal::testing
