// Finds the K largest logits of each row on the device, and reads the logit of one given column (`also`, e.g. that of
// </s>), for beam search. kernels/top_candidates.h defines the results.
//
// A block searches a row K times, each time for the largest logit after the last one found; of equal logits the lower
// column is first. K is small, and a row of logits stays in the cache.
// Numerics: comparisons only; a NaN is never chosen. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

struct TopCandidatesArgs {
  int64_t rows = 0, columns = 0;     // R, V < 2^31
  int32_t count = 1;                 // K
  int32_t also = 0;                  // the column of also_values
  DeviceMatrix<const float> logits;  // [R, V]
  DeviceMatrix<int32_t> tokens;      // [R, K] (=)
  DeviceMatrix<float> values;        // [R, K] (=)
  DevicePointer<float> also_values;  // [R] (=)
  DevicePointer<int32_t> best;       // [R] (=) the first token, or 0 if there is none
};
void TopCandidates(StreamHandle stream, const TopCandidatesArgs& args);

}  // namespace hadal::cuda
