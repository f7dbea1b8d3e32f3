#include "pipeline/checkpoint/exported_tensors.h"

#include "gtest/gtest.h"
#include "layers/method_presets.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

ModelOptions SmallOptions() { return TinyModel({.encoder_layers = 2, .decoder_layers = 3, .d_ff = 16, .heads = 2}); }

std::vector<ExportedTensor> TensorsOf(ResidualMethod method) {
  ModelOptions options = SmallOptions();
  ApplyResidualMethod(method, options);
  return ExportedTensors(DescribeParameters(ModelPlan::Make(options)));
}

TEST(ExportedTensorsTest, AParameterIsATensor) {
  const std::vector<CheckpointParameter> parameters = DescribeParameters(ModelPlan::Make(SmallOptions()));
  const std::vector<ExportedTensor> tensors = ExportedTensors(parameters);
  ASSERT_EQ(tensors.size(), parameters.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].name, parameters[i].name);
    EXPECT_EQ(tensors[i].parameters, std::vector<int32_t>{static_cast<int32_t>(i)});
    EXPECT_EQ(tensors[i].shape.size(), parameters[i].is_vector ? 1u : 2u);
    EXPECT_EQ(tensors[i].ZerosAfter(0), 0);
  }
}

TEST(ExportedTensorsTest, RowsOfTheCombinationAreOneMatrixAStack) {
  for (const ResidualMethod method : {ResidualMethod::kDlclPre, ResidualMethod::kDlclPost}) {
    int matrices = 0;
    for (const ExportedTensor& tensor : TensorsOf(method)) {
      const bool encoder = tensor.name == "encoder.dlcl.weight", decoder = tensor.name == "decoder.dlcl.weight";
      EXPECT_EQ(tensor.parameters.size() > 1, encoder || decoder) << tensor.name;
      if (!encoder && !decoder) continue;
      ++matrices;
      const int64_t rows = encoder ? 3 : 4;
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{rows, rows}));
      ASSERT_EQ(tensor.parameters.size(), static_cast<size_t>(rows));
      for (int64_t row = 0; row < rows; ++row) EXPECT_EQ(tensor.ZerosAfter(row), rows - 1 - row);
    }
    EXPECT_EQ(matrices, 2);
  }
}

TEST(ExportedTensorsTest, AConvolutionIsOutInTaps) {
  const std::vector<ExportedTensor> tensors =
      ExportedTensors({{.name = "encoder.subsample.conv_layers.0.weight", .rows = 6, .columns = 35},
                       {.name = "encoder.subsample.conv_layers.0.bias", .rows = 6, .is_vector = true}});
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{6, 7, 5}));
  EXPECT_EQ(tensors[1].shape, std::vector<int64_t>{6});
}

// One layer: two rows; a stack of one row would be a matrix, too.
TEST(ExportedTensorsTest, OneRowIsAMatrix) {
  const std::vector<ExportedTensor> tensors =
      ExportedTensors({{.name = "decoder.dlcl.weight.0", .rows = 1, .columns = 1, .is_vector = true}});
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].name, "decoder.dlcl.weight");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace hadal
