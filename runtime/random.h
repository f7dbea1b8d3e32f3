// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11,
// section 3.3).
//
// A draw is a pure function of (key, counter). There is no state, so the number of ranks or threads changes no result.
//   key     = the run's 64-bit seed
//   counter = four 32-bit words, defined below for each use
// One call returns four 32-bit words. Dropout reads them as eight 16-bit draws: draw 2·i is the low half of word i,
// draw 2·i+1 its high half.
//
// Dropout counters: word 0 = block, word 1 = site | sublayer << 3 | key_block << 19, word 2 = the step's global
// micro-batch number, word 3 = step. Element e of a packed [rows, width] tensor is row·width + column. Its draw is
// number e % 8 of block e / 8, key_block 0.
// Attention dropout for (query row, head, key position j): block = query row · heads + head, key_block = j / 8, draw j
// % 8.
// Limits: 65,536 sublayers and 65,536 key positions (checked by ValidateModelOptions); 2^32 blocks, that is 2^35
// elements per tensor, 64 GiB in bf16 (not checked).
#pragma once

#include <array>
#include <cstdint>

namespace hadal {

using PhiloxCounter = std::array<uint32_t, 4>;

// The reference implementation. Kernels have vectorised forms; tests compare them with it.
std::array<uint32_t, 4> Philox4x32(uint64_t key, PhiloxCounter counter);

// The use of a random number: the place of a dropout mask in a sublayer, or a use other than dropout.
enum class RandomSite : uint32_t {
  kResidual = 0,    // a sublayer's output before the residual addition; the embedding sum
  kAttention = 1,   // attention probabilities
  kActivation = 2,  // the feed-forward hidden layer, after ReLU
  kFrameMask = 3,   // SpecAugment (runtime/data/input_masks.h)
  kInitialization = 6,
  kSampling = 7,
};

// Identifies the mask of one tensor in one micro-batch.
struct RandomCounter {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t micro_batch = 0;  // index in the step's list of all replicas' micro-batches
  uint32_t sublayer = 0;     // index in the model plan
  RandomSite site = RandomSite::kResidual;

  // The counter of one Philox call; see above for the blocks.
  PhiloxCounter At(uint32_t block, uint32_t key_block = 0) const {
    return {block, static_cast<uint32_t>(site) | sublayer << 3 | key_block << 19, micro_batch, step};
  }
};

// The key, and the counter words that change between micro-batches, in device memory.
struct RandomPosition {
  uint32_t seed_low = 0, seed_high = 0;
  uint32_t micro_batch = 0, step = 0;
};

// Dropout with probability p rounded to threshold/65536. An element whose 16-bit draw is below `threshold` becomes 0;
// others are multiplied by 1/(1 - threshold/65536). threshold = 0: no dropout, and no random number is drawn.
struct Dropout {
  RandomCounter counter;
  uint32_t threshold = 0;
  // On a device: the address of the seed and of the counter's words that change between micro-batches; null: the
  // kernel takes them from `counter`.
  const RandomPosition* device_position = nullptr;

  static uint32_t Threshold(double p) { return static_cast<uint32_t>(p * 65536.0 + 0.5); }
  bool active() const { return threshold != 0; }
  float scale() const { return 65536.0f / static_cast<float>(65536u - threshold); }
};

// The scalar definition of the mask: 0 or scale(). `element` is row·width + column.
float DropoutFactor(const Dropout& dropout, uint64_t element);

// Element `index` of the random sequence that (seed, domain, stream) identifies; `stream` is any number that the user
// of the domain chooses. Uniform in [0, 1) with 32 bits, or standard normal by Box-Muller in double. Slow: for
// initialisation and for the order of samples.
double UniformAt(uint64_t seed, RandomSite domain, uint32_t stream, uint64_t index);
double NormalAt(uint64_t seed, RandomSite domain, uint32_t stream, uint64_t index);

}  // namespace hadal
