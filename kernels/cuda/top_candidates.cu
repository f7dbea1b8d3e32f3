#include "kernels/cuda/operations.h"

#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// A logit and its column; column < 0: none.
struct Candidate {
  float value;
  int32_t column;
};

HADAL_DEVICE Candidate None() { return {FloatOf(0xFF800000u), -1}; }

// Whether a precedes b in descending order.
HADAL_DEVICE bool Before(const Candidate& a, const Candidate& b) {
  if (a.column < 0 || b.column < 0) return b.column < 0 && a.column >= 0;
  return a.value > b.value || (a.value == b.value && a.column < b.column);
}

// Block x: row x.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) TopCandidatesKernel(TopCandidatesArgs args) {
  HADAL_SHARED(float, values, kWarps);
  HADAL_SHARED(int32_t, columns, kWarps);
  const int64_t row = BlockX();
  const DevicePointer<const float> logits = ViewOf(args.logits).row(row);
  Candidate last = None();  // found in the previous pass
  const auto count = static_cast<int32_t>(args.tokens.columns);
  for (int32_t k = 0; k < count; ++k) {
    Candidate best = None();
    for (int64_t column = ThreadIndex(); column < args.logits.columns; column += kThreads) {
      const Candidate here = {Load(logits + column), static_cast<int32_t>(column)};
      const bool open = here.value == here.value && (k == 0 || Before(last, here));
      if (open && Before(here, best)) best = here;
    }
    HADAL_UNROLL for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const Candidate other = {ShuffleXor(best.value, mask), ShuffleXor(best.column, mask)};
      if (Before(other, best)) best = other;
    }
    if (ThreadIndex() % kWarp == 0) {
      values[ThreadIndex() / kWarp] = best.value;
      columns[ThreadIndex() / kWarp] = best.column;
    }
    Barrier();
    HADAL_UNROLL for (int w = 0; w < kWarps; ++w) {
      const Candidate other = {values[w], columns[w]};
      if (Before(other, best)) best = other;
    }
    Barrier();  // the candidates have been read
    if (ThreadIndex() == 0) {
      Store(ViewOf(args.tokens).row(row) + k, best.column);
      Store(ViewOf(args.values).row(row) + k, best.value);
      if (k == 0) Store(ViewOf(args.best) + row, best.column >= 0 ? best.column : 0);
    }
    // After the last one there are no further candidates.
    last = best.column >= 0 ? best : Candidate{FloatOf(0xFF800000u), 0x7FFFFFFF};
  }
  if (ThreadIndex() == 0) Store(ViewOf(args.also_values) + row, Load(logits + args.also));
}

}  // namespace

void TopCandidates(StreamHandle stream, const TopCandidatesArgs& args) {
  if (args.logits.rows == 0) return;
  HADAL_CHECK_LT(args.logits.columns, 0x7FFFFFFF);
  Launch(stream, {.blocks_x = args.logits.rows, .threads = kThreads}, TopCandidatesKernel, args);
}

}  // namespace hadal::cuda
