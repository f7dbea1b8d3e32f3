// Products of matrices on a device, as an interface: cuBLASLt on a GPU (cublas_matmul.h), plain loops in tests.
//
//   C[m, n] (+)= A[m, k] · B[k, n],  then  C = relu(C + bias), each where asked          all row-major
//
// An operand that is stored the other way round says so: A as [k, m], B as [n, k]. Strides are of what is stored.
// Numerics: fp32 in memory; sums in fp32, products in fp32 or, by choice of the implementation, tf32. The order of a sum is a function of
// (shape, strides, device, library): the same bits every time. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

struct MatmulArgs {
  int64_t m = 0, n = 0, k = 0;  // each ≥ 1
  DeviceMatrix<const float> a;
  bool a_transposed = false;  // stored [k, m]
  DeviceMatrix<const float> b;
  bool b_transposed = false;        // stored [n, k]
  DevicePointer<const float> bias;  // [n], or null.  REQUIRES: without accumulate
  bool relu = false;                // max(0, ·) behind the bias; a NaN may become 0.  REQUIRES: without accumulate
  bool accumulate = false;
  DeviceMatrix<float> c;  // [m, n]
};

class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual void Multiply(const MatmulArgs& args) = 0;
};

}  // namespace hadal::cuda
