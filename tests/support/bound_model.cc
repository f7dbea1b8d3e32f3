#include "tests/support/bound_model.h"

#include <numeric>

#include "layers/initialization.h"
#include "layers/parameter_store.h"
#include "runtime/compute_thread.h"
#include "tests/support/moved_parameters.h"

namespace hadal::testing {
namespace {

constexpr uint64_t kWeightSeed = 9, kMoveSeed = 10, kMaskSeed = 3;

std::vector<int32_t> AllSublayers(const ModelPlan& plan) {
  std::vector<int32_t> all(plan.sublayers.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& rows) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t r : rows) offsets.push_back(offsets.back() + r);
  return offsets;
}

// Arbitrary, but no special ones.
std::vector<int32_t> Tokens(int32_t rows, int32_t step, int32_t vocabulary) {
  std::vector<int32_t> tokens(rows);
  for (int32_t r = 0; r < rows; ++r) tokens[r] = kSpecialTokens + r * step % (vocabulary - kSpecialTokens);
  return tokens;
}

int64_t Longest(const PackedBatch& batch) {
  int64_t longest = 0;
  for (const std::vector<int32_t>* offsets : {&batch.source_offsets, &batch.target_offsets}) {
    for (size_t s = 0; s + 1 < offsets->size(); ++s) {
      longest = std::max<int64_t>(longest, (*offsets)[s + 1] - (*offsets)[s]);
    }
  }
  return longest;
}

}  // namespace

PackedBatch PairsOf(const std::vector<int32_t>& source_rows, const std::vector<int32_t>& target_rows,
                    int32_t vocabulary) {
  PackedBatch batch{.micro_batch = 1,
                    .source_offsets = OffsetsOf(source_rows),
                    .target_offsets = OffsetsOf(target_rows),
                    .samples = std::vector<int64_t>(target_rows.size())};
  batch.source = Tokens(batch.source_offsets.back(), 5, vocabulary);
  batch.target_input = Tokens(batch.target_offsets.back(), 7, vocabulary);
  batch.target = Tokens(batch.target_offsets.back(), 11, vocabulary);
  return batch;
}

BoundModel::BoundModel(const ModelOptions& options, PackedBatch batch)
    : plan_(ModelPlan::Make(options)),
      batch_(std::move(batch)),
      capacity_{
          .source_rows = batch_.source_rows(), .target_rows = batch_.target_rows(), .max_length = Longest(batch_)},
      parameters_(plan_, AllSublayers(plan_), Purpose::kTraining, layout_),
      workspace_(plan_, capacity_, stream_, Purpose::kTraining, layout_),
      arena_(Arena::Allocate(layout_).value()) {
  PrepareComputeThread();
  parameters_.Bind(arena_);
  workspace_.Bind(arena_);
  for (const int32_t p : parameters_.owned()) {
    InitializeSlice(stream_, plan_, kWeightSeed, p, 0, parameters_.WeightVector(p));
  }
  MoveParametersOffTheirStart(parameters_, kMoveSeed);
  MoveHiddenUnitsOffTheBend(parameters_);
}

SublayerContext BoundModel::Context() const {
  return {.stream = stream_,
          .parameters = parameters_,
          .workspace = workspace_,
          .batch = batch_,
          .scalars = {.seed = kMaskSeed, .step = 2, .update = 4, .gradient_scale = 1}};
}

void BoundModel::ClearGradients() const {
  const Vector all = parameters_.AllGradients();
  std::fill_n(all.data, all.size, 0.0f);
}

std::vector<float> BoundModel::AllGradients() const {
  const Vector all = parameters_.AllGradients();
  return {all.data, all.data + all.size};
}

std::vector<float> BoundModel::GradientOf(int32_t parameter) const {
  const Vector gradient = parameters_.GradientVector(parameter);
  return {gradient.data, gradient.data + gradient.size};
}

std::span<float> BoundModel::WeightOf(int32_t parameter) const {
  const Vector weight = parameters_.WeightVector(parameter);
  return {weight.data, static_cast<size_t>(weight.size)};
}

}  // namespace hadal::testing
