#include "kernels/cuda/operations.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

template <typename From, typename To, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) ConvertKernel(ConvertArgs args) {
  const auto [row, column, count] = ThisEight(args.to.rows, args.to.columns);
  if (count == 0) return;
  const Eight values = LoadEight<kAligned>(ViewOf<From>(args.from).row(row) + column, count);
  StoreEight<kAligned>(ViewOf<To>(args.to).row(row) + column, values, count);
}

}  // namespace

void Convert(StreamHandle stream, const ConvertArgs& args) {
  if (args.to.rows == 0) return;
  const bool aligned = InAlignedEights(args.to.columns, {args.from, args.to});
  const auto launch = [&]<typename From, typename To>(From, To) {
    Launch(stream, ShapeOfEights(args.to.rows, args.to.columns),
           aligned ? ConvertKernel<From, To, true> : ConvertKernel<From, To, false>, args);
  };
  if (args.from.storage == Storage::kFloat32) return launch(float(), BFloat16());
  launch(BFloat16(), float());
}

}  // namespace hadal::cuda
