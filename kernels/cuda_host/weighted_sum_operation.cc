#include "kernels/cuda/weighted_sum.h"
#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"
#include "runtime/check.h"

namespace hadal::cuda {

static_assert(cuda::kWeightedSumRowBlock == hadal::kWeightedSumRowBlock);  // WeightedSumPartials is enough

void operation::WeightedSumForward(const Stream& stream, const hadal::WeightedSumForwardArgs& args) {
  const auto launch = [&]<typename X, typename Y>(X, Y) {
    cuda::WeightedSumForward<X, Y>(DeviceOf(stream).handle(), {.rows = args.y.rows,
                                                               .width = args.y.columns,
                                                               .terms = args.weights.size,
                                                               .x = ViewOf<X>(args.x),
                                                               .weights = args.weights.data,
                                                               .y = ViewOf<Y>(args.y)});
  };
  if (args.x.storage == Storage::kBFloat16) {
    HADAL_CHECK(args.y.storage == Storage::kBFloat16);
    return launch(BFloat16(), BFloat16());
  }
  WithElement(args.y.storage, [&]<typename Y>(Y) { launch(float(), Y()); });
}

void operation::WeightedSumBackward(const Stream& stream, const hadal::WeightedSumBackwardArgs& args) {
  WithElement(args.x.storage, [&]<typename X>(X) {
    cuda::WeightedSumBackward<X>(DeviceOf(stream).handle(), {.rows = args.dy.rows,
                                                             .width = args.dy.columns,
                                                             .terms = args.weights.size,
                                                             .dy = ViewOf<X>(args.dy),
                                                             .x = ViewOf<X>(args.x),
                                                             .weights = args.weights.data,
                                                             .dx = ViewOf(args.dx),
                                                             .d_weights = args.d_weights.data,
                                                             .partials = args.partials.data});
  });
}

}  // namespace hadal::cuda
