// Token embedding on the device: the formulas of kernels/embedding.h, with these differences.
//
// Forward reads each row's position instead of sentence offsets. The element types of E and x are float and
// float, BFloat16 and BFloat16, or BFloat16 and float.
// Backward needs no atomics: the host groups the rows of a batch by token once (GroupRowsByToken), and one block owns
// each table row that occurs. Team t of its threads (row_team.h) adds rows t, t + teams, t + 2·teams, … of the group;
// then the teams' sums are added, all in ascending order. The order depends only on the batch and the width.
// Gradients of learned positions: one block per position scans all rows and adds those at its position, ascending.
// The kernel reads the number of groups from device memory, and the grid has a block for each row of the batch's
// capacity, so a captured graph serves every batch. Tokens and positions below 0 mark padding rows: x = 0, no gradient.
// Numerics: fp32; x = f · fma(multiplier, E[token], PE[position]), f: dropout's factor (0 or scale). Asynchronous.
// REQUIRES: the members of args.device_tokens that the call reads are set; W ≤ kMaxTeamWidth (row_team.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device_view.h"
#include "kernels/embedding.h"

namespace hadal::cuda {

void EmbeddingForward(StreamHandle stream, const EmbeddingForwardArgs& args);

// The rows of a batch whose token is ≥ 0, sorted by (token, row). Group g is the elements [starts[g],
// starts[g + 1]) of sorted_rows; its token is tokens[g].
struct TokenGroups {
  std::vector<int32_t> sorted_rows, starts, tokens;
};
TokenGroups GroupRowsByToken(const std::vector<int32_t>& tokens);

// Adds to d_table and, if not empty, d_positions. Of args.tokens only the size is read: the most groups possible.
void EmbeddingBackward(StreamHandle stream, const EmbeddingBackwardArgs& args);

}  // namespace hadal::cuda
