#include "kernels/cuda/shift_scale.h"
#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {

static_assert(cuda::kShiftScaleRowBlock == hadal::kShiftScaleRowBlock);  // ShiftScalePartials is enough

void operation::ShiftScaleForward(const Stream& stream, const hadal::ShiftScaleForwardArgs& args) {
  cuda::ShiftScaleForward<float, float>(DeviceOf(stream).handle(), {.rows = args.x.rows,
                                                                    .width = args.x.columns,
                                                                    .x = ViewOf(args.x),
                                                                    .shift = args.shift.data,
                                                                    .scale = args.scale.data,
                                                                    .y = ViewOf(args.y)});
}

void operation::ShiftScaleBackward(const Stream& stream, const hadal::ShiftScaleBackwardArgs& args) {
  cuda::ShiftScaleBackward<float, float>(DeviceOf(stream).handle(), {.rows = args.dy.rows,
                                                                     .width = args.dy.columns,
                                                                     .accumulate = args.accumulate,
                                                                     .dy = ViewOf(args.dy),
                                                                     .x = ViewOf(args.x),
                                                                     .shift = args.shift.data,
                                                                     .scale = args.scale.data,
                                                                     .dx = ViewOf(args.dx),
                                                                     .d_shift = args.d_shift.data,
                                                                     .d_scale = args.d_scale.data,
                                                                     .partials = args.partials.data});
}

}  // namespace hadal::cuda
