#include "kernels/sum_of_squares.h"

#include <algorithm>

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {

double SumOfSquares(ConstVector x) {
  HADAL_CHECK_GE(x.size, 0);
  return cpu::SumOfSquares(x);
}

// The thread whose share contains a slice's first element sums the slice.
void SumsOfSquares(const Stream& stream, const SumsOfSquaresArgs& args) {
  HADAL_CHECK_EQ(args.sums.size(), args.slices.size());
  if (args.slices.empty()) return;
  if (stream.device() != nullptr) return stream.device()->kernels().sums_of_squares(stream, args);
  constexpr int64_t kGrain = 4096;
  const auto before = [](const SquaresSlice& slice, int64_t element) { return slice.first < element; };
  stream.ForRanges(args.slices.back().first + 1, kGrain, [&](int64_t begin, int64_t end) {
    auto s = std::lower_bound(args.slices.begin(), args.slices.end(), begin, before);
    for (; s != args.slices.end() && s->first < end; ++s) args.sums[s - args.slices.begin()] = SumOfSquares(s->x);
  });
}

}  // namespace hadal
