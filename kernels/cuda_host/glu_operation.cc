#include "kernels/cuda/glu.h"

#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"
#include "kernels/glu.h"

namespace hadal::cuda {

void operation::GluForward(const Stream& stream, const hadal::GluForwardArgs& args) {
  const auto launch = [&]<typename Z, typename Y>(Z, Y) {
    cuda::GluForward<Z, Y>(
        DeviceOf(stream).handle(),
        {.rows = args.y.rows, .width = args.y.columns, .z = ViewOf<Z>(args.z), .y = ViewOf<Y>(args.y)});
  };
  if (args.z.storage == Storage::kFloat32) return launch(float(), float());
  WithElement(args.y.storage, [&]<typename Y>(Y) { launch(BFloat16(), Y()); });
}

void operation::GluBackward(const Stream& stream, const hadal::GluBackwardArgs& args) {
  WithElement(args.z.storage, [&]<typename Z>(Z) {
    cuda::GluBackward<Z>(
        DeviceOf(stream).handle(),
        {.rows = args.dy.rows, .width = args.dy.columns, .dy = ViewOf(args.dy), .z = ViewOf<Z>(args.z)});
  });
}

}  // namespace hadal::cuda
