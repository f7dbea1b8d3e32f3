#include "pipeline/checkpoint/exported_tensors.h"

#include <map>
#include <string_view>

#include "kernels/unfold.h"

namespace hadal {
namespace {

constexpr std::string_view kRowsName = ".dlcl.weight.";

// The name of the matrix of which a parameter is a row; empty where it is none.
std::string MatrixOfRow(const std::string& name) {
  const size_t at = name.find(kRowsName);
  return at == std::string::npos ? "" : name.substr(0, at + kRowsName.size() - 1);
}

// A Conv1d's weight, [out, in, taps].
bool IsConvolution(const CheckpointParameter& parameter) {
  return !parameter.is_vector && parameter.name.find(".conv_layers.") != std::string::npos &&
         parameter.columns % kConvolutionTaps == 0;
}

}  // namespace

std::vector<ExportedTensor> ExportedTensors(const std::vector<CheckpointParameter>& parameters) {
  std::vector<ExportedTensor> tensors;
  std::map<std::string, size_t> matrices;  // by name, of `tensors`
  for (int32_t p = 0; p < static_cast<int32_t>(parameters.size()); ++p) {
    const CheckpointParameter& parameter = parameters[p];
    const std::string matrix = MatrixOfRow(parameter.name);
    if (const auto found = matrices.find(matrix); found != matrices.end()) {
      ExportedTensor& tensor = tensors[found->second];
      tensor.parameters.push_back(p);  // a plan has its rows in ascending order
      tensor.shape = {parameter.rows, parameter.rows};
      continue;
    }
    ExportedTensor& tensor = tensors.emplace_back();
    tensor.parameters = {p};
    tensor.shape = {parameter.rows};
    if (matrix.empty()) {
      tensor.name = parameter.name;
      if (!parameter.is_vector) tensor.shape.push_back(parameter.columns);
      if (IsConvolution(parameter))
        tensor.shape = {parameter.rows, parameter.columns / kConvolutionTaps, kConvolutionTaps};
    } else {
      tensor.name = matrix;
      tensor.shape.push_back(parameter.rows);
      matrices.emplace(matrix, tensors.size() - 1);
    }
  }
  return tensors;
}

}  // namespace hadal
