#include "kernels/cuda/add.h"
#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"

namespace hadal::cuda {

void operation::Add(const Stream& stream, const hadal::AddArgs& args) {
  cuda::Add(HandleOf(stream), {.size = args.sum.size, .sum = args.sum.data, .values = args.values.data});
}

}  // namespace hadal::cuda
