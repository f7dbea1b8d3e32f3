// Muon's parts that are not products, on the device: kernels/muon.h, kernels/orthogonalize.h. Each is one pass over
// memory with the CPU's operations in the same order.
// Memory traffic of an element: momentum 16 bytes, step 12 (with the bf16 copy 14), scaled 8 (to bf16 6), polynomial 12
// (to bf16 10). 16-byte accesses if every pointer is 16-byte aligned; the polynomial's are single.
// Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/muon.h"
#include "kernels/orthogonalize.h"

namespace hadal::cuda {

void MuonMomentum(StreamHandle stream, const MuonMomentumArgs& args);
void MuonStep(StreamHandle stream, const MuonStepArgs& args);
// REQUIRES: dense matrices.
void Scaled(StreamHandle stream, const ScaledArgs& args);
void Polynomial(StreamHandle stream, const PolynomialArgs& args);

}  // namespace hadal::cuda
