// Several residual streams (mHC) on the device: the formulas, shapes and constants of kernels/hyper_connection.h.
//
// A warp has one row. Reads and their backward keep Sinkhorn's matrix in registers, two elements a lane; its backward
// keeps the matrix after each of the 40 divisions there.
// Memory traffic: what kernels/hyper_connection.h states, in floats, where a row's second reading of its residuals (u
// and the update of dx, behind sums over the row) comes from a cache.
// Numerics: fp32. A sum over a row: lane l adds columns l, l + 32, …, then the lanes as a butterfly; sums of Sinkhorn's
// columns: elements i and i + 4, then as a butterfly; rows: a butterfly. Gradients of gates and bias: a warp adds rows
// w, w + 8, … of a block of kHyperRowBlock, warps are added in ascending order, then blocks (column_merge.h). The order
// depends only on the shape. SumResiduals adds residuals i and i + 4, then i and i + 2, then both. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

inline constexpr int kMostResiduals = 8;
inline constexpr int64_t kHyperRowBlock = 32;
inline constexpr int64_t kHyperGates = 3;

struct HyperReadForwardArgs {
  int64_t rows = 0, width = 1, residuals = 1;  // R, d, n
  DeviceMatrix<const float> x;                 // [R, n·d]
  DeviceMatrix<const float> projected;         // [R, m]
  DevicePointer<const float> gates, bias;      // [3], [m]
  DeviceMatrix<float> maps;                    // [R, m] (=)
  DevicePointer<float> rstd;                   // [R] (=)
  DeviceMatrix<float> u;                       // [R, d] (=)
};
void HyperReadForward(StreamHandle stream, const HyperReadForwardArgs& args);

struct HyperWriteForwardArgs {
  int64_t rows = 0, width = 1, residuals = 1;
  DeviceMatrix<const float> x, maps, f;  // [R, n·d], [R, m], [R, d]
  DeviceMatrix<float> y;                 // [R, n·d] (=)
};
void HyperWriteForward(StreamHandle stream, const HyperWriteForwardArgs& args);

struct HyperWriteBackwardArgs {
  int64_t rows = 0, width = 1, residuals = 1;
  DeviceMatrix<const float> dy, x, maps, f;
  DeviceMatrix<float> dx;      // [R, n·d] (=); may alias dy
  DeviceMatrix<float> df;      // [R, d] (=)
  DeviceMatrix<float> d_maps;  // [R, m] (=) of H_post and H_res
};
void HyperWriteBackward(StreamHandle stream, const HyperWriteBackwardArgs& args);

struct HyperReadBackwardArgs {
  int64_t rows = 0, width = 1, residuals = 1;
  DeviceMatrix<const float> du, x, projected, maps;
  DevicePointer<const float> rstd, gates, bias;
  DeviceMatrix<float> d_maps;            // [R, m]; becomes the gradient of `projected`
  DeviceMatrix<float> dx;                // [R, n·d] (+=)
  DevicePointer<float> d_gates, d_bias;  // [3], [m] (+=)
  DevicePointer<float> partials;         // scratch [⌈R / kHyperRowBlock⌉ · (m + 3)]
};
void HyperReadBackward(StreamHandle stream, const HyperReadBackwardArgs& args);

struct CopyToResidualsArgs {
  int64_t rows = 0, width = 1, residuals = 1;
  float gain = 1.0f;
  DeviceMatrix<const float> x;  // [R, d]
  DeviceMatrix<float> y;        // [R, n·d] (=)
};
void CopyToResiduals(StreamHandle stream, const CopyToResidualsArgs& args);

struct SumResidualsArgs {
  int64_t rows = 0, width = 1, residuals = 1;
  float gain = 1.0f;
  DeviceMatrix<const float> x;  // [R, n·d]
  DeviceMatrix<float> y;        // [R, d] (=)
};
void SumResiduals(StreamHandle stream, const SumResidualsArgs& args);

}  // namespace hadal::cuda
