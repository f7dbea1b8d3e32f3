// Interface for products of matrices on a device: cuBLASLt on a GPU (cublas_matmul.h), plain loops in tests.
//
//   C[m, n] = or += A[m, k] · B[k, n]             all row-major; with these epilogues, each optional:
//     bias, relu     C = relu(C + bias)
//     written_mask   also writes which elements relu passes: one bit each, in the implementation's own order
//     read_mask      C = 0 where such a mask says that relu passed nothing: relu's gradient
//     a_sums         also Σ_k A[·, k]: the bias's gradient if A is a gradient over rows (transposed)
//
// An operand may be stored transposed: A as [k, m], B as [n, k]. Strides are those of the stored matrix.
// Several products of one shape, whose matrices lie at constant distances, are one launch.
// Storage: A and B are both fp32 or both bf16; C is fp32 or has their type; the bias has C's type; a_sums are fp32
// (cuBLASLt stores them as C).
// Numerics: sums in fp32, rounded once to C's type. Products of fp32 are in fp32 or, if the implementation chooses so,
// tf32. The order of a sum is a function of (shape, strides, types, device, library): deterministic. It does not
// depend on the number of products. Asynchronous.
#pragma once

#include <cstddef>

#include "kernels/linear.h"
#include "runtime/device_queues.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal::cuda {

// Vectors and masks of an epilogue must be 16-byte aligned. cuBLASLt's preferences have an alignment for each matrix
// but none for a bias, and some of its kernels read 16 bytes of a bias at once.
inline bool OnMatmulBoundary(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

struct MatmulArgs {
  int64_t m = 0, n = 0, k = 0;  // each ≥ 1
  ConstAnyMatrix a;
  bool a_transposed = false;  // stored [k, m]
  ConstAnyMatrix b;
  bool b_transposed = false;             // stored [n, k]
  ConstAnyVector bias;                   // [n], or empty
  bool relu = false;                     // max(0, ·) after the bias; a NaN may become 0
  std::byte* written_mask = nullptr;     // [ReluMaskBytes(m, n)] (=), or null.  REQUIRES: relu
  const std::byte* read_mask = nullptr;  // from a product of m × n, or null. REQUIRES: no bias, no relu
  Vector a_sums;            // [m] (=), or empty. REQUIRES: no other epilogue (accumulate is allowed); C fp32
  bool accumulate = false;  // REQUIRES: no bias, relu or mask
  AnyMatrix c;              // [m, n]
  // `count` products in one launch, and the distances from one product's matrices and sums to the next one's, in
  // elements. A step of 0: all read the same matrix. REQUIRES: count = 1 if the epilogue changes C; steps ≥ 0; c's
  // products do not overlap; a_sums_step on 16 bytes.
  int64_t count = 1, a_step = 0, b_step = 0, c_step = 0, a_sums_step = 0;
  // The queue to launch on, and, if it is not the main one, a workspace of its own (OwnMemory::kWorkspaceBytes).
  DeviceQueues::Queue queue = DeviceQueues::kMain;
  std::byte* workspace = nullptr;

  // Whether an epilogue changes C.
  bool FinishesC() const { return !bias.empty() || relu || read_mask != nullptr; }
  bool HasEpilogue() const { return FinishesC() || !a_sums.empty(); }
};

// Aborts if the arguments break the rules above.
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
  HADAL_CHECK(args.count == 1 || (args.count > 1 && !args.FinishesC() && args.c_step > 0));
  HADAL_CHECK(args.a_step >= 0 && args.b_step >= 0 && args.a_sums_step % 4 == 0);
  HADAL_CHECK(args.a_sums.empty() || (args.c.storage == Storage::kFloat32 && args.a_sums.size == args.m));
}

class Matmul {
 public:
  virtual ~Matmul() = default;
  // Whether the implementation has this product and, as far as it can tell, the epilogue is faster than a kernel of its
  // own; for args.count > 1, also whether one launch can do so many. Always true for one product without an epilogue. A
  // function of (shape, strides, types, number of products, which matrices are 16-byte aligned, device, library) alone,
  // never of earlier calls. Does not dereference the arguments' pointers.
  virtual bool Offers(const MatmulArgs& args) = 0;
  // REQUIRES: Offers(args).
  virtual void Multiply(const MatmulArgs& args) = 0;
};

}  // namespace hadal::cuda
