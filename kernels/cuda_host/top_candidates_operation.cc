#include "kernels/cuda/top_candidates.h"

#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"

namespace hadal::cuda {

void operation::TopCandidates(const Stream& stream, const hadal::TopCandidatesArgs& args) {
  cuda::TopCandidates(DeviceOf(stream).handle(), {.rows = args.logits.rows,
                                                  .columns = args.logits.columns,
                                                  .count = static_cast<int32_t>(args.tokens.columns),
                                                  .also = args.also,
                                                  .logits = ViewOf(args.logits),
                                                  .tokens = {args.tokens.data, args.tokens.stride},
                                                  .values = ViewOf(args.values),
                                                  .also_values = args.also_values.data,
                                                  .best = args.best.data});
}

}  // namespace hadal::cuda
