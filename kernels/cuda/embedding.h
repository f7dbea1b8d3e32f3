// Token embedding on the device: the formulas of kernels/embedding.h, with these differences.
//
// Forward reads each row's position instead of sentence offsets. E and x are <float, float>, <BFloat16, BFloat16> or
// <BFloat16, float>.
// Backward needs no atomics: the host groups the rows of a batch by token once (GroupRowsByToken), and one block owns
// each row of the table that occurs. Teams of threads add the group's rows t, t + teams, … in ascending order; teams
// are added in ascending order. The order depends only on the batch and the width.
// The number of groups is read from device memory, and the grid has a block for each row of the batch's capacity, so a
// captured graph serves every batch. Tokens and positions below 0 mark padding rows: x = 0, no gradient.
// Numerics: fp32; x = f · fma(multiplier, E, PE). Asynchronous. REQUIRES: args.device_tokens; W ≤ kMaxTeamWidth
// (row_team.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device_view.h"
#include "kernels/embedding.h"

namespace hadal::cuda {

void EmbeddingForward(StreamHandle stream, const EmbeddingForwardArgs& args);

// The rows of a batch, sorted by (token, row). Group g is sorted_rows[starts[g]] … [starts[g + 1]); its token is
// tokens[g].
struct TokenGroups {
  std::vector<int32_t> sorted_rows, starts, tokens;
};
TokenGroups GroupRowsByToken(const std::vector<int32_t>& tokens);

// Of args.tokens only the number is used: the most groups there can be.
void EmbeddingBackward(StreamHandle stream, const EmbeddingBackwardArgs& args);

}  // namespace hadal::cuda
