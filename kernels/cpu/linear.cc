#include "kernels/cpu/linear.h"

#include <dnnl.h>
#include <omp.h>

#include "kernels/cpu/linear_epilogue.h"
#include "kernels/cpu/row_product.h"
#include "runtime/check.h"

namespace hadal::cpu {
namespace {

// Least rows of a product, unless there are fewer: oneDNN sums products of ≤ 8 rows in another order.
constexpr int64_t kRowGrain = 16;

// Weights with at least this many rows: an output head's, or those of a very wide layer.
constexpr int64_t kHeadRows = 4096;

// Rows per call where oneDNN's sums depend on the number of rows in a call (every instruction set below AVX-512).
constexpr int64_t kFixedRows = 192;

// Whether the bits of a row of a product of ≥ 16 rows do not depend on the other rows. Measured for oneDNN 2.6 on
// AVX-512 with the shapes of the tests; its AVX and AVX2 kernels differ.
bool RowsAreIndependent() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

// Calls product(first, last) for parts of the rows [begin, end) such that, with ≥ 16 rows, the bits of a row of x·Wᵀ do
// not depend on its other rows. Below AVX-512 oneDNN (2.6) adds some rows of a product in another order (AVX2: the last
// ones, unless tiles of 24 or 16 rows fill it; AVX: those of long products), but not of products of 16, 24, 48, 96 or
// 192 rows. Parts have these sizes, and the last part overlaps the one before. Rows that are computed twice have the
// same bits twice, so the product must replace its output, not add to it.
template <typename Product>
void ForWholeTiles(int64_t begin, int64_t end, const Product& product) {
  if (end - begin < kRowGrain || RowsAreIndependent()) return product(begin, end);
  constexpr int64_t kTiles[] = {192, 96, 48, 24};
  const int64_t last = end - begin < 24 ? kRowGrain : 24;
  int64_t row = begin;
  for (const int64_t tile : kTiles) {
    for (; end - row >= tile; row += tile) product(row, row + tile);
  }
  if (row == begin) product(begin, begin + last);
  if (row < end) product(end - last, end);
}

// Splits the output rows of a product over the stream's threads and calls product(begin, end), such that the number of
// threads does not change any bit: one range per thread if rows are independent, else blocks of rows with fixed bounds.
template <typename Product>
void ForProductRows(const Stream& stream, int64_t rows, const Product& product) {
  if (RowsAreIndependent()) {
    stream.ForRanges(rows, kRowGrain, product);
    return;
  }
  stream.ForRanges(rows, kFixedRows, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t next = end - begin < 2 * kFixedRows ? end : begin + kFixedRows;
      product(begin, next);
      begin = next;
    }
  });
}

// c[rows, columns] = op(a)·op(b) + beta·c on the calling thread alone, with any OpenMP settings.
void SerialProduct(char transpose_a, char transpose_b, int64_t depth, const float* a, int64_t a_stride,
                   const ConstMatrix& b, float beta, const Matrix& c) {
  const int threads = omp_get_max_threads();
  if (threads != 1) omp_set_num_threads(1);
  const dnnl_status_t status = dnnl_sgemm(transpose_a, transpose_b, c.rows, c.columns, depth, 1.0f, a, a_stride, b.data,
                                          b.stride, beta, c.data, c.stride);
  if (threads != 1) omp_set_num_threads(threads);
  HADAL_CHECK_EQ(status, dnnl_success);  // dnnl_out_of_memory (1): no memory for its packing buffers, about 10 MiB
}

// Whether threads split the columns of dx, because the rows are too few for them: a block of a large vocabulary's
// logits has 64 rows and 250,000 terms. On AVX-512 columns are independent, too.
bool SplitsColumns(const Stream& stream, const LinearBackwardInputArgs& args) {
  const bool few_rows = args.dy.rows / kRowGrain < stream.threads();
  return few_rows && args.relu_output.empty() && args.weight.rows >= kHeadRows && RowsAreIndependent();
}

}  // namespace

void LinearForward(const Stream& stream, const LinearForwardArgs& args) {
  if (args.row_by_row) return RowProduct(stream, args);
  const ConstMatrix x = args.x.floats(), weight = args.weight.floats();
  stream.ForRanges(x.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    ForWholeTiles(begin, end, [&](int64_t first, int64_t last) {
      const Matrix y = args.y.floats().Rows(first, last - first);
      SerialProduct('N', 'T', x.columns, x.row(first), x.stride, weight, /*beta=*/0.0f, y);
    });
    ApplyLinearEpilogue(args, begin, end);
  });
}

void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args) {
  const ConstMatrix dy = args.dy.floats(), weight = args.weight.floats();
  if (SplitsColumns(stream, args)) {
    return stream.ForRanges(weight.columns, kRowGrain, [&](int64_t begin, int64_t end) {
      const Matrix dx = args.dx.floats().Columns(begin, end - begin);
      SerialProduct('N', 'N', dy.columns, dy.data, dy.stride, weight.Columns(begin, end - begin),
                    args.accumulate ? 1.0f : 0.0f, dx);
    });
  }
  ForProductRows(stream, dy.rows, [&](int64_t begin, int64_t end) {
    const Matrix dx = args.dx.floats().Rows(begin, end - begin);
    const float beta = args.accumulate ? 1.0f : 0.0f;
    SerialProduct('N', 'N', dy.columns, dy.row(begin), dy.stride, weight, beta, dx);
    if (args.relu_output.empty()) return;
    ApplyReluMask(args.relu_output.floats().Rows(begin, end - begin), args.mask_scale, dx);
  });
}

void ReluBackward(const Stream& stream, const ReluBackwardArgs& args) {
  stream.ForRanges(args.dx.rows, 16, [&](int64_t begin, int64_t end) {
    ApplyReluMask(args.relu_output.floats().Rows(begin, end - begin), args.mask_scale,
                  args.dx.floats().Rows(begin, end - begin));
  });
}

void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args) {
  const ConstMatrix dy = args.dy.floats(), x = args.x.floats();
  ForProductRows(stream, args.d_weight.rows, [&](int64_t begin, int64_t end) {
    const Matrix d_weight = args.d_weight.Rows(begin, end - begin);
    SerialProduct('T', 'N', dy.rows, dy.data + begin, dy.stride, x, /*beta=*/1.0f, d_weight);
    if (!args.d_bias.empty()) AddColumnSums(dy.Columns(begin, end - begin), args.d_bias.data + begin);
  });
}

}  // namespace hadal::cpu
