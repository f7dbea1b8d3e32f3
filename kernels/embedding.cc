#include "kernels/embedding.h"

#include <limits>

#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"
#include "runtime/math.h"

namespace hadal {
namespace {

// Checks that every entry is a row of a table of `rows` or, with device tokens, −1: a padding row.
void CheckTokens(const ConstTokens& tokens, int64_t rows, const DeviceTokens& device_tokens = {}) {
  for (int64_t row = 0; row < tokens.size; ++row) {
    HADAL_CHECK_GE(tokens[row], device_tokens.tokens != nullptr ? -1 : 0);
    HADAL_CHECK_LT(tokens[row], rows);
  }
}

void CheckOffsets(const ConstTokens& offsets, int64_t rows, int64_t positions, const DeviceTokens& device_tokens) {
  HADAL_CHECK_GE(offsets.size, 2);
  HADAL_CHECK_EQ(offsets[0], 0);
  const int64_t last = offsets[offsets.size - 1];
  HADAL_CHECK(last == rows || (device_tokens.tokens != nullptr && last < rows));
  for (int64_t n = 0; n + 1 < offsets.size; ++n) {
    HADAL_CHECK_LE(offsets[n], offsets[n + 1]);
    HADAL_CHECK_LE(offsets[n + 1] - offsets[n], positions);
  }
}

}  // namespace

void FillSinusoidalPositions(Matrix table) {
  constexpr int64_t kFirstPosition = 2;  // fairseq: padding index 1, plus 1
  const int64_t half = table.columns / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = half > 1 ? static_cast<double>(i) / (half - 1) : 0.0;
    const double frequency = Pow(10000.0, -exponent);
    for (int64_t p = 0; p < table.rows; ++p) {
      const double angle = (p + kFirstPosition) * frequency;
      table.row(p)[i] = static_cast<float>(Sin(angle));
      table.row(p)[half + i] = static_cast<float>(Cos(angle));
    }
  }
  if (table.columns % 2 == 0) return;
  for (int64_t p = 0; p < table.rows; ++p) table.row(p)[table.columns - 1] = 0.0f;
}

void EmbeddingForward(const Stream& stream, const EmbeddingForwardArgs& args) {
  if (args.tokens.size == 0) return;
  HADAL_CHECK_EQ(args.x.rows, args.tokens.size);
  HADAL_CHECK_EQ(args.table.columns, args.x.columns);
  if (!args.positions.empty()) HADAL_CHECK_EQ(args.positions.columns, args.x.columns);
  const int64_t positions = args.positions.empty() ? std::numeric_limits<int32_t>::max() : args.positions.rows;
  if (args.row_positions.empty()) {
    CheckOffsets(args.offsets, args.tokens.size, positions, args.device_tokens);
  } else {
    HADAL_CHECK_EQ(args.row_positions.size, args.tokens.size);
    CheckTokens(args.row_positions, positions);
  }
  CheckTokens(args.tokens, args.table.rows, args.device_tokens);
  RunKernel(stream, &DeviceKernels::embedding_forward, cpu::EmbeddingForward, args);
}

void EmbeddingBackward(const Stream& stream, const EmbeddingBackwardArgs& args) {
  if (args.tokens.size == 0) return;
  HADAL_CHECK_EQ(args.dx.rows, args.tokens.size);
  HADAL_CHECK_EQ(args.d_table.columns, args.dx.columns);
  CheckTokens(args.tokens, args.d_table.rows, args.device_tokens);
  if (!args.d_positions.empty()) {
    HADAL_CHECK_EQ(args.d_positions.columns, args.dx.columns);
    CheckOffsets(args.offsets, args.tokens.size, args.d_positions.rows, args.device_tokens);
  }
  RunKernel(stream, &DeviceKernels::embedding_backward, cpu::EmbeddingBackward, args);
}

}  // namespace hadal
