#include "runtime/random.h"
#include "runtime/math.h"

#include <cmath>
#include <numbers>

namespace hadal {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

// Philox words for element `index` of (domain, stream); one counter per index.
std::array<uint32_t, 4> WordsAt(uint64_t seed, RandomSite domain, uint32_t stream, uint64_t index) {
  return Philox4x32(
      seed, {static_cast<uint32_t>(index), static_cast<uint32_t>(domain), stream, static_cast<uint32_t>(index >> 32)});
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(uint64_t key, PhiloxCounter counter) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c0;
    const uint64_t product1 = uint64_t{kMultiplier1} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

float DropoutFactor(const Dropout& dropout, uint64_t element) {
  if (!dropout.active()) return 1.0f;
  const PhiloxCounter counter = dropout.counter.At(static_cast<uint32_t>(element / 8));
  const uint32_t bits = Philox4x32(dropout.counter.seed, counter)[element % 8 / 2] >> (16 * (element % 2)) & 0xFFFF;
  return bits < dropout.threshold ? 0.0f : dropout.scale();
}

double UniformAt(uint64_t seed, RandomSite domain, uint32_t stream, uint64_t index) {
  return WordsAt(seed, domain, stream, index)[0] * 0x1p-32;
}

double NormalAt(uint64_t seed, RandomSite domain, uint32_t stream, uint64_t index) {
  const std::array<uint32_t, 4> words = WordsAt(seed, domain, stream, index);
  const double radius = std::sqrt(-2.0 * Log((words[0] + 0.5) * 0x1p-32));
  return radius * Cos(2.0 * std::numbers::pi * (words[1] * 0x1p-32));
}

}  // namespace hadal
