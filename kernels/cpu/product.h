// Matrix products of linear layers on the CPU, each element in one order of sums.
//
//   kRowsByRows        C[m, n] (=, +=) A[m, k] · B[n, k]ᵀ      forward, x·Wᵀ
//   kRowsByColumns     C[m, n] (=, +=) A[m, k] · B[k, n]       gradient of the input, dy·W
//   kColumnsByColumns  C[m, n] += A[k, m]ᵀ · B[k, n]           gradient of the weight, dyᵀ·x
//
// Order of sums: an element is one chain of fused multiply-adds (without FMA: product, then sum) over ascending k,
// which starts from 0, or with `add` from C. kColumnsByColumns has a chain from 0 for each kProductBlock terms, and
// adds the chains to C in ascending order: one chain over all tokens of a large micro-batch would lose accuracy.
// Blocks of m, n and k, threads and the vector's width change no bit, and a row of C does not depend on the others.
// Method: a tile of C, 6 rows (AVX-512: 14) by 2 vectors, stays in registers. Blocks of up to kProductBlock terms of
// B are copied into panels that are two vectors wide and stay in the L2 cache, unless B is already in panels; rows of
// A are copied into the L1 cache. In the first two forms, the chains of the next block of terms start from the values
// in C. A product of few rows (decoding) reads B once, in place. The shape of C decides how threads share its rows
// and columns. The last tiles of C may have fewer rows; a tile with fewer columns is computed in a copy.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal::cpu {

constexpr int64_t kProductBlock = 512;  // terms of a block; fixes the order of sums of kColumnsByColumns

enum class ProductForm { kRowsByRows, kRowsByColumns, kColumnsByColumns };

// Rows [row, row + rows) and columns [column, column + columns) of C.
struct ProductPart {
  int64_t row, rows, column, columns;

  Matrix Of(const Matrix& m) const { return m.Rows(row, rows).Columns(column, columns); }
  ConstMatrix Of(const ConstMatrix& m) const { return m.Rows(row, rows).Columns(column, columns); }
};

struct ProductArgs {
  ProductForm form;
  ConstMatrix a, b;
  bool b_in_panels = false;  // by PackPanels; kRowsByRows alone
  bool add = false;          // whether C is added to (+=); kColumnsByColumns always adds
  Matrix c;
};

// Computes args.c. Calls finish(part) for parts that cover C, each once its elements are final and while they are in
// the cache.
// REQUIRES: matching shapes; k ≥ 1; C overlaps neither operand. Blocking; allocates nothing, and uses up to 700 KiB of
// each thread's stack.
void Product(const Stream& stream, const ProductArgs& args, absl::FunctionRef<void(const ProductPart&)> finish);

// Rearranges B [n, k] of kRowsByRows in place: [n / T, k, T], T the columns of a tile (32, 16 or 8 by the instruction
// set). REQUIRES: contiguous; n a multiple of 32.
void PackPanels(const Matrix& b);

// For measuring the peak rate of a core: in each of `rounds` rounds, computes one multiply-add of each of several
// vectors in registers, as many as hide the latency. Returns the number of floating-point operations: two for each
// lane of a multiply-add.
int64_t MultiplyInRegisters(int64_t rounds);

}  // namespace hadal::cpu
