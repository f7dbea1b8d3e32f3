// Products of matrices on a device, as an interface: cuBLASLt on a GPU (cublas_matmul.h), plain loops in tests.
//
//   C[m, n] (+)= A[m, k] · B[k, n],  and what rides on it, each where asked          all row-major
//     bias, relu     C = relu(C + bias)
//     written_mask   besides, which elements relu let pass: one bit an element, in an order that is the implementation's own
//     read_mask      C = 0 where such a mask says that relu let nothing pass: the gradient of relu
//     a_sums         besides, Σ_k A[·, k]: where A is a gradient over rows (transposed), that of its bias
//
// An operand that is stored the other way round says so: A as [k, m], B as [n, k]. Strides are of what is stored.
// Storage: A and B both fp32 or both bf16; C fp32, or bf16 as they are; the bias as C; a_sums fp32 (cuBLASLt stores them as C).
// Numerics: sums in fp32, rounded once to C's type; products of fp32 in fp32 or, by choice of the implementation, tf32. The order of a sum is
// a function of (shape, strides, types, device, library): the same bits every time. Asynchronous.
#pragma once

#include <cstddef>

#include "kernels/linear.h"
#include "runtime/tensor.h"

namespace hadal::cuda {

// Vectors and masks that ride on a product lie on 16 bytes: cuBLASLt's preferences name an alignment for each matrix and none for a bias,
// which kernels of it then read 16 bytes at once.
inline bool OnMatmulBoundary(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

struct MatmulArgs {
  int64_t m = 0, n = 0, k = 0;  // each ≥ 1
  ConstAnyMatrix a;
  bool a_transposed = false;  // stored [k, m]
  ConstAnyMatrix b;
  bool b_transposed = false;             // stored [n, k]
  ConstAnyVector bias;                   // [n], or empty
  bool relu = false;                     // max(0, ·) behind the bias; a NaN may become 0
  std::byte* written_mask = nullptr;     // [ReluMaskBytes(m, n)] (=), or null.  REQUIRES: relu
  const std::byte* read_mask = nullptr;  // of a product that wrote one of m × n, or null.  REQUIRES: no bias, no relu
  Vector a_sums;                         // [m] (=), or empty.  REQUIRES: nothing else rides, but for accumulate; C fp32
  bool accumulate = false;               // REQUIRES: no bias, relu or mask
  AnyMatrix c;                           // [m, n]

  // Whether C is more than the product; whether anything rides on it.
  bool FinishesC() const { return !bias.empty() || relu || read_mask != nullptr; }
  bool HasEpilogue() const { return FinishesC() || !a_sums.empty(); }
};

// Aborts where the arguments are not as above.
inline void CheckArgs(const MatmulArgs& args) {
  HADAL_CHECK(args.m >= 1 && args.n >= 1 && args.k >= 1);
  HADAL_CHECK(args.a.storage == args.b.storage);
  HADAL_CHECK(args.c.storage == Storage::kFloat32 || args.c.storage == args.a.storage);
  HADAL_CHECK(args.bias.empty() || args.bias.storage == args.c.storage);
  HADAL_CHECK(OnMatmulBoundary(args.bias.data) && OnMatmulBoundary(args.a_sums.data));
  HADAL_CHECK(OnMatmulBoundary(args.written_mask) && OnMatmulBoundary(args.read_mask));
  HADAL_CHECK(args.written_mask == nullptr || args.relu);
  HADAL_CHECK(args.read_mask == nullptr || !(args.relu || !args.bias.empty()));
  HADAL_CHECK(!args.FinishesC() || (args.a_sums.empty() && !args.accumulate));
  HADAL_CHECK(args.a_sums.empty() || (args.c.storage == Storage::kFloat32 && args.a_sums.size == args.m));
}

class Matmul {
 public:
  virtual ~Matmul() = default;
  // Whether there is such a product, and worth what rides on it as far as the implementation can tell. One that nothing rides on there always is. A function of (shape, strides,
  // types, which matrices lie on 16 bytes, device, library) alone, never of what else ran: no pointer of the arguments is followed.
  virtual bool Offers(const MatmulArgs& args) = 0;
  // REQUIRES: it is offered.
  virtual void Multiply(const MatmulArgs& args) = 0;
};

}  // namespace hadal::cuda
