// Replaces a matrix U by about the nearest matrix with orthonormal rows (columns, if it has more rows than columns): of
// U = P·S·Qᵀ the singular values S become numbers near 1. The Newton–Schulz iteration of Muon:
//
//   X = U / max(‖U‖_F, 1e-7);  `steps` times:  A = X·Xᵀ;  X = (a·I + b·A + c·A²)·X
// With more rows than columns A = Xᵀ·X, and the polynomial stands behind X. Without what symmetry saves it costs
// 2·steps·(2·n²·m + n³) operations, n ≤ m.
// The coefficients of Jordan et al. 2024 give singular values between about 0.7 and 1.2 after 5 steps.
// Storage: products read fp32, or on a device bf16 as in torch.optim.Muon; A, A² and the result are fp32 in both.
// (Torch adds a·X to the product in place of a·I to the polynomial; the difference is rounding.)
// Numerics on the CPU: products as kernels/cpu/product.h. If A has more than 128 rows, they compute of A and A² what
// is below the diagonal, by halves, and copy what is above: an element and its mirror image are the same chain of
// terms, so this changes no bit. The bits do not depend on threads, nor on the instruction set if it has FMA. U = 0
// gives 0. REQUIRES: a dense matrix; steps ≥ 1; the workspace's size (aborts otherwise). Blocking on the CPU,
// asynchronous on a device; allocates nothing.
#pragma once

#include <cstdint>

#include "runtime/storage.h"
#include "runtime/tensor.h"

namespace hadal {

class Stream;

struct NewtonSchulz {
  int32_t steps = 5;
  double a = 3.4445, b = -4.775, c = 2.0315;
  bool operator==(const NewtonSchulz&) const = default;
};

struct OrthogonalizeArgs {
  Matrix u;            // [R, C] (in place)
  double squares = 0;  // Σ u²
  NewtonSchulz iteration;
  Storage storage = Storage::kFloat32;  // of the products' operands. REQUIRES: fp32 on the CPU
  Vector workspace;                     // [at least OrthogonalizeFloats(R, C, storage)], 32-byte aligned
};
void Orthogonalize(const Stream& stream, const OrthogonalizeArgs& args);
int64_t OrthogonalizeFloats(int64_t rows, int64_t columns, Storage storage);

// Floating-point operations, with A and A² by halves as on the CPU or not.
double OrthogonalizeOperations(int64_t rows, int64_t columns, int32_t steps, bool by_halves);

// The parts that are not products, for a device's kernels.
struct ScaledArgs {
  ConstMatrix from;
  float scale = 1;
  AnyMatrix to;  // (=) fp32 or bf16; may be `from`
};
struct PolynomialArgs {
  ConstMatrix a, square;  // [n, n] A and A²
  float c0 = 0, c1 = 0, c2 = 0;
  AnyMatrix to;  // [n, n] (=) c0·I + c1·A + c2·A²; fp32 or bf16; may be `square`
};

}  // namespace hadal
