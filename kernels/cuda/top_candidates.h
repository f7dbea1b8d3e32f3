// The K largest logits of each row on the device, for beam search: kernels/top_candidates.h, V < 2^31.
//
// A block searches a row K times, each time for the largest logit after the last one found; of equal logits the lower
// column is first. K is small, and a row of logits stays in the cache.
// Numerics: comparisons only; a NaN is never chosen. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/top_candidates.h"

namespace hadal::cuda {

void TopCandidates(StreamHandle stream, const TopCandidatesArgs& args);

}  // namespace hadal::cuda
