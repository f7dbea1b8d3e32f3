// Lists a model's parameters as whole tensors under fairseq's names, for export to other programs.
//
// Each tensor is one parameter, except for the layer weights of DLCL (dynamic linear combination of layers): every row
// is a parameter of its own, on the rank of the layer that reads it (layers/layer_combination.h):
// "encoder.dlcl.weight.0" [1] … "encoder.dlcl.weight.n" [n + 1] together form "encoder.dlcl.weight" [n + 1, n + 1],
// zero above the diagonal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/checkpoint/checkpoint_manifest.h"

namespace hadal {

struct ExportedTensor {
  std::string name;
  std::vector<int64_t> shape;  // one or two dimensions
  // Indices in the list of parameters: one parameter with all elements, or for each row of the tensor one with the
  // row's elements up to the diagonal.
  std::vector<int32_t> parameters;

  // Returns the number of zeros after the elements of parameters[row].
  int64_t ZerosAfter(size_t row) const { return parameters.size() == 1 ? 0 : shape[1] - static_cast<int64_t>(row) - 1; }
};

// Lists the tensors in the order of their first parameters.
std::vector<ExportedTensor> ExportedTensors(const std::vector<CheckpointParameter>& parameters);

}  // namespace hadal
