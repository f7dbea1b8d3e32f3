#include "kernels/cuda/sum_of_squares.h"

#include <algorithm>
#include <array>

#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {
namespace {

constexpr size_t kSlicesAtATime = 1024;

// The number of adjacent slices from the first one on, up to kSlicesAtATime and the room in scratch.
struct Run {
  std::array<int64_t, kSlicesAtATime + 1> offsets;
  int64_t slices = 0, longest = 0;

  int64_t ScratchBytes() const {
    return (SumOfSquaresPartials(slices, longest) + slices) * static_cast<int64_t>(sizeof(double));
  }
};

Run FirstRun(std::span<const SquaresSlice> slices) {
  Run run;
  run.offsets[0] = 0;
  for (const SquaresSlice& slice : slices) {
    const int64_t begin = run.offsets[run.slices];
    if (run.slices == kSlicesAtATime || slice.x.data != slices[0].x.data + begin) break;
    const int64_t longest = std::max(run.longest, slice.x.size);
    if (run.slices > 0 &&
        Run{.slices = run.slices + 1, .longest = longest}.ScratchBytes() > LaunchMemory::kScratchBytes)
      break;
    run.longest = longest;
    run.offsets[++run.slices] = begin + slice.x.size;
  }
  HADAL_CHECK_LE(run.ScratchBytes(), LaunchMemory::kScratchBytes);
  return run;
}

}  // namespace

void operation::SumsOfSquares(const Stream& stream, const hadal::SumsOfSquaresArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  double* const sums = reinterpret_cast<double*>(device.launch_memory().scratch());
  for (size_t first = 0; first < args.slices.size();) {
    const Run run = FirstRun(args.slices.subspan(first));
    SumOfSquares(device.handle(), {.x = args.slices[first].x.data,
                                   .slices = run.slices,
                                   .offsets = device.launch_memory().Put(run.offsets.data(), run.slices + 1),
                                   .max_slice_size = run.longest,
                                   .partials = sums + run.slices,
                                   .sums = sums});
    stream.ToHost(args.sums.data() + first, sums, run.slices * static_cast<int64_t>(sizeof(double)));
    first += run.slices;
  }
}

}  // namespace hadal::cuda
