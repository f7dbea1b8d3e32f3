#include "kernels/cuda/head_scale.h"
#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"
#include "kernels/head_scale.h"

namespace hadal::cuda {

static_assert(kHeadScaleRowBlock == hadal::kHeadScaleRowBlock, "HeadScalePartials counts its blocks");

void operation::HeadScaleForward(const Stream& stream, const hadal::HeadScaleForwardArgs& args) {
  WithElement(args.x.storage, [&]<typename T>(T) {
    cuda::HeadScaleForward<T>(DeviceOf(stream).handle(), {.rows = args.x.rows,
                                                          .heads = args.gain.size,
                                                          .head_width = args.x.columns / args.gain.size,
                                                          .x = ViewOf<T>(args.x),
                                                          .gain = args.gain.data,
                                                          .y = ViewOf<T>(args.y)});
  });
}

void operation::HeadScaleBackward(const Stream& stream, const hadal::HeadScaleBackwardArgs& args) {
  WithElement(args.dy.storage, [&]<typename T>(T) {
    cuda::HeadScaleBackward<T>(DeviceOf(stream).handle(), {.rows = args.dy.rows,
                                                           .heads = args.gain.size,
                                                           .head_width = args.dy.columns / args.gain.size,
                                                           .dy = ViewOf<T>(args.dy),
                                                           .x = ViewOf<T>(args.x),
                                                           .gain = args.gain.data,
                                                           .dx = ViewOf<T>(args.dx),
                                                           .d_gain = args.d_gain.data,
                                                           .partials = args.partials.data});
  });
}

}  // namespace hadal::cuda
