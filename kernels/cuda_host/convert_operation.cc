#include "kernels/cuda/convert.h"
#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"

namespace hadal::cuda {

void operation::Convert(const Stream& stream, const hadal::ConvertArgs& args) {
  const auto launch = [&]<typename From, typename To>(From, To) {
    const ConvertArgs<From, To> typed = {
        .rows = args.to.rows, .width = args.to.columns, .from = ViewOf<From>(args.from), .to = ViewOf<To>(args.to)};
    cuda::Convert(DeviceOf(stream).handle(), typed);
  };
  if (args.from.storage == Storage::kFloat32) return launch(float(), BFloat16());
  launch(BFloat16(), float());
}

}  // namespace hadal::cuda
