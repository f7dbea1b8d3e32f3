#include "kernels/cuda/shift_scale.h"
#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"
#include "runtime/check.h"

namespace hadal::cuda {
namespace {

static_assert(cuda::kShiftScaleRowBlock == hadal::kShiftScaleRowBlock);  // ShiftScalePartials is enough

// Calls body(X(), Y()) with the types of x and y.
template <typename Body>
void WithTypes(Storage x, Storage y, Body&& body) {
  if (x == Storage::kBFloat16) {
    HADAL_CHECK(y == Storage::kBFloat16);
    return body(BFloat16(), BFloat16());
  }
  WithElement(y, [&]<typename Y>(Y) { body(float(), Y()); });
}

}  // namespace

void operation::ShiftScaleForward(const Stream& stream, const hadal::ShiftScaleForwardArgs& args) {
  WithTypes(args.x.storage, args.y.storage, [&]<typename X, typename Y>(X, Y) {
    cuda::ShiftScaleForward<X, Y>(DeviceOf(stream).handle(), {.rows = args.x.rows,
                                                              .width = args.x.columns,
                                                              .x = ViewOf<X>(args.x),
                                                              .shift = args.shift.data,
                                                              .scale = args.scale.data,
                                                              .y = ViewOf<Y>(args.y)});
  });
}

void operation::ShiftScaleBackward(const Stream& stream, const hadal::ShiftScaleBackwardArgs& args) {
  WithTypes(args.dx.storage, args.dy.storage, [&]<typename X, typename Y>(X, Y) {
    cuda::ShiftScaleBackward<X, Y>(DeviceOf(stream).handle(), {.rows = args.dy.rows,
                                                               .width = args.dy.columns,
                                                               .accumulate = args.accumulate,
                                                               .dy = ViewOf<Y>(args.dy),
                                                               .x = ViewOf<X>(args.x),
                                                               .shift = args.shift.data,
                                                               .scale = args.scale.data,
                                                               .dx = ViewOf<X>(args.dx),
                                                               .d_shift = args.d_shift.data,
                                                               .d_scale = args.d_scale.data,
                                                               .partials = args.partials.data});
  });
}

}  // namespace hadal::cuda
