// Products of matrices on a device, as an interface: cuBLASLt on a GPU (cublas_matmul.h), plain loops in tests.
//
//   C[m, n] (+)= A[m, k] · B[k, n],  then  C = relu(C + bias), each where asked          all row-major
//
// An operand that is stored the other way round says so: A as [k, m], B as [n, k]. Strides are of what is stored.
// Storage: A and B both fp32 or both bf16; C fp32, or bf16 as they are; the bias as C.
// Numerics: sums in fp32, rounded once to C's type; products of fp32 in fp32 or, by choice of the implementation, tf32. The order of a sum is
// a function of (shape, strides, types, device, library): the same bits every time. Asynchronous.
#pragma once

#include "runtime/tensor.h"

namespace hadal::cuda {

struct MatmulArgs {
  int64_t m = 0, n = 0, k = 0;  // each ≥ 1
  ConstAnyMatrix a;
  bool a_transposed = false;  // stored [k, m]
  ConstAnyMatrix b;
  bool b_transposed = false;  // stored [n, k]
  ConstAnyVector bias;        // [n], or empty.  REQUIRES: MayBeBias; without accumulate
  bool relu = false;          // max(0, ·) behind the bias; a NaN may become 0.  REQUIRES: without accumulate
  bool accumulate = false;
  AnyMatrix c;  // [m, n]
};

// On 16 bytes: cuBLASLt's preferences name an alignment for each matrix and none for the bias, which kernels of it then read 16 bytes at once.
inline bool MayBeBias(const ConstAnyVector& bias) { return reinterpret_cast<uintptr_t>(bias.data) % 16 == 0; }

// Aborts where the types are not as above.
inline void CheckTypes(const MatmulArgs& args) {
  HADAL_CHECK(MayBeBias(args.bias));
  HADAL_CHECK(args.a.storage == args.b.storage);
  HADAL_CHECK(args.c.storage == Storage::kFloat32 || args.c.storage == args.a.storage);
  HADAL_CHECK(args.bias.empty() || args.bias.storage == args.c.storage);
}

class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual void Multiply(const MatmulArgs& args) = 0;
};

}  // namespace hadal::cuda
