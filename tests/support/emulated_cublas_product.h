// A product of the emulated cuBLASLt (emulated_cublas_lt.cc): its checks, and its computation by plain loops.
//
// As in the reference of cublasLtMatmul: op(A) is [m, k], op(B) [k, n], the bias has m entries of D's type. ReLU with
// AUX also writes a mask of m × n bits (columns AUX_LD bits apart, a multiple of 128; within a column the order of bits
// is this library's own, and the bits after row m are set). DRELU reads a mask. BGRADB writes the n sums of op(B)'s
// columns over k, of D's type. In a strided batch all products have one shape; D's may not overlap, and a gradient's
// sums lie on 16 bytes for each.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace hadal::testing {

struct CublasLtLayout {
  cudaDataType type;
  int64_t rows, columns, leading;
  int32_t count = 1;  // matrices, `step` elements apart
  int64_t step = 0;
};

struct CublasLtDescription {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int64_t bias_step = 0;  // to the next product's
  std::byte* mask = nullptr;
  int64_t mask_leading = 0;
};

// The identity of a product: an algorithm is valid only for the product for which it was searched.
struct CublasLtProblem {
  CublasLtDescription description;
  CublasLtLayout a, b, d;
  bool same_c_and_d;

  int64_t m() const { return d.rows; }
  int64_t n() const { return d.columns; }
  int64_t k() const { return description.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
  // The vector of CUBLASLT_MATMUL_DESC_BIAS_POINTER: a bias or its gradient, of D's type.
  bool has_vector() const;
  // Of all products.
  int64_t vector_bytes() const;
  bool has_mask() const;
  int64_t mask_bytes() const { return n() * description.mask_leading / 8; }
};

int64_t SpanBytes(const CublasLtLayout& layout);
int64_t StepBytes(const CublasLtLayout& layout);

// Returns INVALID_VALUE for inconsistent shapes, leading dimensions and addresses, NOT_SUPPORTED for types outside the
// documented table and for epilogues that are not emulated.
cublasStatus_t CheckProblem(const CublasLtProblem& problem);

struct CublasLtOperands {
  const void *a, *b;
  void* d;
  float alpha, beta;
  // Whether two blocks share the sum over k and add their parts in D's type (CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE).
  bool adds_parts_in_d_type = false;
  bool descending = false;  // adds from the last term to the first
};
// REQUIRES: CheckProblem reports no error.
void Multiply(const CublasLtProblem& problem, const CublasLtOperands& operands);

}  // namespace hadal::testing
