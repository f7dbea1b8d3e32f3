#include "kernels/cuda/head_scale.h"
#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {

void operation::HeadScaleForward(const Stream& stream, const hadal::HeadScaleForwardArgs& args) {
  WithElement(args.x.storage, [&]<typename T>(T) {
    HeadScale<T>(DeviceOf(stream).handle(), {.rows = args.x.rows,
                                             .heads = args.gain.size,
                                             .head_width = args.x.columns / args.gain.size,
                                             .x = ViewOf<T>(args.x),
                                             .gain = args.gain.data,
                                             .y = ViewOf<T>(args.y)});
  });
}

// The gain's gradient first: dx may lie over dy.
void operation::HeadScaleBackward(const Stream& stream, const hadal::HeadScaleBackwardArgs& args) {
  const StreamHandle handle = DeviceOf(stream).handle();
  const int64_t heads = args.gain.size, head_width = args.dy.columns / heads;
  WithElement(args.dy.storage, [&]<typename T>(T) {
    HeadScaleGain<T>(handle, {.rows = args.dy.rows,
                              .heads = heads,
                              .head_width = head_width,
                              .dy = ViewOf<T>(args.dy),
                              .x = ViewOf<T>(args.x),
                              .d_gain = args.d_gain.data});
    HeadScale<T>(handle, {.rows = args.dy.rows,
                          .heads = heads,
                          .head_width = head_width,
                          .x = ViewOf<T>(args.dy),
                          .gain = args.gain.data,
                          .y = ViewOf<T>(args.dx)});
  });
}

}  // namespace hadal::cuda
