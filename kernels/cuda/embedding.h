// Token embedding on the device: the formulas of kernels/embedding.h, with these differences.
//
// Forward reads each row's position instead of sentence offsets. Table is the type of E, Stream that of x and dx.
// Backward needs no atomics: the host groups the rows of a batch by token once (GroupRowsByToken), and one block owns
// each row of the table that occurs. Teams of threads add the group's rows t, t + teams, … in ascending order; teams
// are added in ascending order. The order depends only on the batch and the width.
// The number of groups is read from device memory, and the grid has a block for each row of the batch's capacity, so a
// captured graph serves every batch. Tokens and positions below 0 mark padding rows: x = 0, no gradient.
// Numerics: fp32; x = f · fma(multiplier, E, PE). Asynchronous. REQUIRES: 1 ≤ W ≤ kMaxTeamWidth (row_team.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device_view.h"
#include "kernels/cuda/dropout.h"

namespace hadal::cuda {

template <typename Table, typename Stream>
struct EmbeddingForwardArgs {
  int64_t rows = 0, width = 0;                 // R, W
  DevicePointer<const int32_t> tokens;         // [R]
  DevicePointer<const int32_t> row_positions;  // [R] position in the sentence, from 0
  DeviceMatrix<const Table> table;             // E [V, W]
  DeviceMatrix<const float> positions;         // PE [P, W]
  float multiplier = 1.0f;
  DeviceDropout dropout;
  DeviceMatrix<Stream> x;  // [R, W] (=)
};
template <typename Table, typename Stream>
void EmbeddingForward(StreamHandle stream, const EmbeddingForwardArgs<Table, Stream>& args);

// The rows of a batch, sorted by (token, row). Group g is sorted_rows[starts[g]] … [starts[g + 1]); its token is
// tokens[g].
struct TokenGroups {
  std::vector<int32_t> sorted_rows, starts, tokens;
};
TokenGroups GroupRowsByToken(const std::vector<int32_t>& tokens);

template <typename Stream>
struct EmbeddingBackwardArgs {
  int64_t max_groups = 0, width = 0;          // max_groups: capacity, the grid's size; width: W
  DevicePointer<const int32_t> group_count;   // one
  DevicePointer<const int32_t> group_starts;  // [groups + 1]
  DevicePointer<const int32_t> group_tokens;  // [groups]
  DevicePointer<const int32_t> sorted_rows;   // [rows with a token]
  DeviceMatrix<const Stream> dx;              // [R, W]
  float multiplier = 1.0f;
  DeviceDropout dropout;
  DeviceMatrix<float> d_table;  // [V, W] (+=)
};
template <typename Stream>
void EmbeddingBackward(StreamHandle stream, const EmbeddingBackwardArgs<Stream>& args);

}  // namespace hadal::cuda
