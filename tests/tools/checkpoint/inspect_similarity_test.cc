#include "tools/checkpoint/inspect_similarity.h"
#include "layers/parameter_store.h"

#include <cmath>

#include "gtest/gtest.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/corpus.h"
#include "runtime/data/packed_batch.h"
#include "runtime/status_macros.h"
#include "tests/support/small_model.h"

namespace hadal {
namespace {

constexpr int32_t kLayers = 3;
constexpr int64_t kWidth = 32;
constexpr absl::Duration kTimeout = absl::Seconds(60);

// The outputs of all sublayers.
class Outputs : public DepthObserver {
 public:
  void Observe(const Stream&, int32_t, const DepthObservation& o) override {
    if (o.tensor != DepthTensor::kOutput) return;
    const float* data = o.values.floats().data;
    values[o.sublayer].assign(data, data + o.values.rows * o.values.columns);
  }
  std::map<int32_t, std::vector<float>> values;
};

double MeanCosine(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  const size_t rows = a.size() / kWidth;
  for (size_t r = 0; r < rows; ++r) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = r * kWidth; i < (r + 1) * kWidth; ++i) {
      ab += static_cast<double>(a[i]) * b[i];
      aa += static_cast<double>(a[i]) * a[i];
      bb += static_cast<double>(b[i]) * b[i];
    }
    sum += ab / std::sqrt(aa * bb);
  }
  return sum / static_cast<double>(rows);
}

absl::Status Compare(Communicator& communicator) {
  PrepareComputeThread();
  const ModelPlan plan = ModelPlan::Make(testing::SmallModel(
      ResidualMethod::kDeepNorm, {.encoder_layers = kLayers, .decoder_layers = kLayers, .d_model = kWidth}));
  const Stream stream = Stream::Cpu(1);
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline, MakePipelineLayout(plan, {.micro_batches = 1}, {}, 1));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.plan = plan,
                                                                               .pipeline = pipeline,
                                                                               .stream = stream,
                                                                               .purpose = Purpose::kInference,
                                                                               .world = communicator,
                                                                               .timeout = kTimeout}));
  HADAL_RETURN_IF_ERROR(
      InitializeParameters(pipeline, engine->stage().parameters(), 7, stream, communicator, kTimeout));
  PackedBatch batch;
  const std::vector<int32_t> source = {7, 9, 30, 12, 44}, target = {8, 11, 49};
  AppendSentence({.source = source, .target = target}, 0, batch);
  HADAL_ASSIGN_OR_RETURN(const LayerSimilarity similarity, MeasureSimilarity(*engine, batch, 1));
  Outputs outputs;
  engine->Observe(&outputs);
  HADAL_RETURN_IF_ERROR(engine->Evaluate({&batch, 1}, {.training = false}).status());
  EXPECT_EQ(similarity.source_rows, 6);
  EXPECT_EQ(similarity.target_rows, 4);
  EXPECT_EQ(similarity.encoder.size(), 3u);
  EXPECT_EQ(similarity.decoder.size(), 3u);
  for (int32_t i = 0; i < kLayers; ++i) {
    for (int32_t j = 0; j < kLayers; ++j) {
      // Sublayer 0 is the source embedding; 2·3 encoder sublayers later stands the target's.
      EXPECT_NEAR(similarity.encoder[i][j], MeanCosine(outputs.values[2 * i + 2], outputs.values[2 * j + 2]), 1e-5);
      EXPECT_NEAR(similarity.decoder[i][j], MeanCosine(outputs.values[3 * i + 10], outputs.values[3 * j + 10]), 1e-5);
    }
  }
  EXPECT_LT(similarity.encoder[0][2], 0.999);
  return absl::OkStatus();
}

TEST(InspectSimilarity, EachLayerAgainstEachIsThatOfAPlainComputation) {
  InProcessWorld world(1);
  const absl::Status status = world.Run([](Communicator& communicator) { return Compare(communicator); });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(InspectSimilarity, MeansLeaveOutTheDiagonal) {
  const SimilarityMeans means = MeansOf({{1, 0.5f, 0.1f}, {0.5f, 1, 0.3f}, {0.1f, 0.3f, 1}});
  EXPECT_NEAR(means.neighbours, 0.4, 1e-6);
  EXPECT_NEAR(means.pairs, 0.3, 1e-6);
}

}  // namespace
}  // namespace hadal
