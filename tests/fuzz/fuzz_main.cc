// libFuzzer's door to one reader: HADAL_FUZZ_TARGET names it. See README.md.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/reader_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const hadal::fuzz::ReaderTarget& target = hadal::fuzz::FindReaderTarget(HADAL_FUZZ_TARGET);
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
