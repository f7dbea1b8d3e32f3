#include "kernels/cuda/weighted_sum.h"
#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {

static_assert(cuda::kWeightedSumRowBlock == hadal::kWeightedSumRowBlock);  // WeightedSumPartials is enough

void operation::WeightedSumForward(const Stream& stream, const hadal::WeightedSumForwardArgs& args) {
  cuda::WeightedSumForward<float>(DeviceOf(stream).handle(), {.rows = args.y.rows,
                                                              .width = args.y.columns,
                                                              .terms = args.weights.size,
                                                              .x = ViewOf(args.x),
                                                              .weights = args.weights.data,
                                                              .y = ViewOf(args.y)});
}

void operation::WeightedSumBackward(const Stream& stream, const hadal::WeightedSumBackwardArgs& args) {
  cuda::WeightedSumBackward<float>(DeviceOf(stream).handle(), {.rows = args.dy.rows,
                                                               .width = args.dy.columns,
                                                               .terms = args.weights.size,
                                                               .dy = ViewOf(args.dy),
                                                               .x = ViewOf(args.x),
                                                               .weights = args.weights.data,
                                                               .dx = ViewOf(args.dx),
                                                               .d_weights = args.d_weights.data,
                                                               .partials = args.partials.data});
}

}  // namespace hadal::cuda
