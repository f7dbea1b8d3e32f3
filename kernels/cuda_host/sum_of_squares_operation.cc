#include "kernels/cuda/sum_of_squares.h"

#include <algorithm>
#include <array>

#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/operations.h"

namespace hadal::cuda {
namespace {

constexpr size_t kSlicesAtATime = 1024;

// The slices of one launch: as many as kSlicesAtATime and the size of scratch allow.
struct Run {
  std::array<SquaresRange, kSlicesAtATime> ranges;
  const float* x = nullptr;  // the lowest address of the ranges
  int64_t slices = 0, longest = 0;

  int64_t ScratchBytes() const {
    return (SumOfSquaresPartials(slices, longest) + slices) * static_cast<int64_t>(sizeof(double));
  }
};

Run FirstRun(std::span<const SquaresSlice> slices) {
  Run run;
  for (const SquaresSlice& slice : slices.first(std::min(slices.size(), kSlicesAtATime))) {
    Run longer;
    longer.slices = run.slices + 1, longer.longest = std::max(run.longest, slice.x.size);
    if (run.slices > 0 && longer.ScratchBytes() > LaunchMemory::kScratchBytes) break;
    run.slices = longer.slices, run.longest = longer.longest;
    run.x = run.x == nullptr ? slice.x.data : std::min(run.x, slice.x.data);
  }
  HADAL_CHECK_LE(run.ScratchBytes(), LaunchMemory::kScratchBytes);
  for (int64_t i = 0; i < run.slices; ++i) {
    const int64_t begin = slices[i].x.data - run.x;
    run.ranges[i] = {begin, begin + slices[i].x.size};
  }
  return run;
}

}  // namespace

void operation::SumsOfSquares(const Stream& stream, const hadal::SumsOfSquaresArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  double* const sums = reinterpret_cast<double*>(device.launch_memory().scratch());
  for (size_t first = 0; first < args.slices.size();) {
    const Run run = FirstRun(args.slices.subspan(first));
    SumOfSquares(device.handle(), {.x = run.x,
                                   .slices = run.slices,
                                   .ranges = device.launch_memory().Put(run.ranges.data(), run.slices),
                                   .max_slice_size = run.longest,
                                   .partials = sums + run.slices,
                                   .sums = sums});
    stream.ToHost(args.sums.data() + first, sums, run.slices * static_cast<int64_t>(sizeof(double)));
    first += run.slices;
  }
}

}  // namespace hadal::cuda
