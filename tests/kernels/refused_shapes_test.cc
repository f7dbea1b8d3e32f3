// What the operations refuse before any backend sees it: shapes that do not belong together, outputs that lie on
// inputs, scratch that is too small. Each with what its dispatcher says, so that no accident further down counts.

#include "gtest/gtest.h"
#include "kernels/activation.h"
#include "kernels/adam.h"
#include "kernels/add.h"
#include "kernels/attention.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/head_norm.h"
#include "kernels/hyper_connection.h"
#include "kernels/linear.h"
#include "kernels/muon.h"
#include "kernels/orthogonalize.h"
#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "kernels/sum_of_squares.h"
#include "kernels/top_candidates.h"
#include "kernels/weighted_sum.h"
#include "runtime/stream.h"

namespace hadal {
namespace {

// Disjoint memory for every argument.
class Memory {
 public:
  float* Take(int64_t floats) { return (next_ += floats) - floats; }
  Matrix Of(int64_t rows, int64_t columns) { return {Take(rows * columns), rows, columns}; }
  Vector Of(int64_t size) { return {Take(size), size}; }

 private:
  std::vector<float> floats_ = std::vector<float>(100000, 0.5f);
  float* next_ = floats_.data();
};

template <typename Args>
struct Wrong {
  const char* says;  // a regular expression
  std::function<void(Args&)> change;
};

// The operation takes the arguments as they are, and none of the changed ones.
template <typename Args>
void ExpectRefused(void (*operation)(const Stream&, const Args&), const Args& good,
                   const std::vector<Wrong<Args>>& wrongs) {
  operation(Stream::Cpu(1), good);
  for (const Wrong<Args>& wrong : wrongs) {
    Args args = good;
    wrong.change(args);
    EXPECT_DEATH(operation(Stream::Cpu(1), args), wrong.says);
  }
}

TEST(RefusedShapesDeathTest, OfLinear) {
  Memory m;
  const LinearForwardArgs forward{.x = m.Of(2, 3), .weight = m.Of(5, 3), .bias = m.Of(5), .y = m.Of(2, 5)};
  ExpectRefused<LinearForwardArgs>(LinearForward, forward,
                                   {{"3 vs. 4", [](auto& a) { a.weight.columns = a.weight.stride = 4; }},
                                    {"out.columns == weight.rows", [](auto& a) { a.y.columns = 4; }},
                                    {"out.rows == in.rows", [](auto& a) { a.y.rows = 1; }},
                                    {"args.bias.size == args.weight.rows", [](auto& a) { a.bias.size = 4; }},
                                    {"m.stride >= m.columns", [](auto& a) { a.x.stride = 2; }}});
  const LinearBackwardInputArgs input{
      .dy = m.Of(2, 5), .weight = forward.weight, .relu_output = m.Of(2, 3), .dx = m.Of(2, 3)};
  ExpectRefused<LinearBackwardInputArgs>(
      LinearBackwardInput, input,
      {{"out.columns == weight.rows", [](auto& a) { a.dy.columns = 4; }},
       {"in.columns == weight.columns", [](auto& a) { a.dx.columns = 2; }},
       {"out.rows == in.rows", [](auto& a) { a.dx.rows = 1; }},
       {"args.relu_output.rows == args.dx.rows", [](auto& a) { a.relu_output.rows = 1; }},
       {"args.relu_output.columns == args.dx.columns", [](auto& a) { a.relu_output.columns = 2; }},
       {"!args.accumulate", [](auto& a) { a.accumulate = true; }}});
  const LinearBackwardWeightArgs weight{.dy = input.dy, .x = forward.x, .d_weight = m.Of(5, 3), .d_bias = m.Of(5)};
  ExpectRefused<LinearBackwardWeightArgs>(
      LinearBackwardWeight, weight,
      {{"out.columns == weight.rows", [](auto& a) { a.d_weight.rows = 4; }},
       {"in.columns == weight.columns", [](auto& a) { a.d_weight.columns = 2; }},
       {"out.rows == in.rows", [](auto& a) { a.dy.rows = 1; }},
       {"args.d_bias.size == args.dy.columns", [](auto& a) { a.d_bias.size = 4; }}});
}

TEST(RefusedShapesDeathTest, OfResidualNorm) {
  Memory m;
  ResidualNormForwardArgs forward{.residual = m.Of(2, 3), .branch = m.Of(2, 3), .bias = m.Of(3)};
  forward.scale = m.Of(3), forward.shift = m.Of(3), forward.sum = m.Of(2, 3), forward.normed = m.Of(2, 3);
  forward.mean = m.Of(2), forward.rstd = m.Of(2);
  ExpectRefused<ResidualNormForwardArgs>(
      ResidualNormForward, forward,
      {{"v.size == size", [](auto& a) { a.bias.size = 2; }},
       {"v.size == size", [](auto& a) { a.rstd.size = 1; }},
       {"m.columns == width", [](auto& a) { a.normed.columns = 2; }},
       {"!args.normed.empty.. == norm", [](auto& a) { a.normed = {}; }},
       {"!args.mean.empty.. == norm", [](auto& a) { a.mean = {}; }},
       {"!args.rstd.empty.. == norm", [](auto& a) { a.rstd = {}; }},
       {"args.normed.data != args.residual.data", [](auto& a) { a.residual.data = a.normed.data; }},
       {"args.normed.data != args.branch.data", [](auto& a) { a.branch.data = a.normed.data; }},
       {"args.normed.data != args.sum.data", [](auto& a) { a.sum.data = a.normed.data; }}});
  ResidualNormBackwardArgs backward{.d_normed = m.Of(2, 3), .sum = forward.sum, .mean = forward.mean};
  backward.rstd = forward.rstd, backward.scale = forward.scale, backward.d_residual = m.Of(2, 3);
  backward.d_branch = m.Of(2, 3), backward.d_bias = m.Of(3), backward.d_scale = m.Of(3), backward.d_shift = m.Of(3);
  backward.partials = m.Of(ResidualNormPartials(2, 3));
  ExpectRefused<ResidualNormBackwardArgs>(
      ResidualNormBackward, backward,
      {{"m.rows == rows", [](auto& a) { a.d_branch.rows = 1; }},
       {"v.size == size", [](auto& a) { a.d_scale.size = 2; }},
       {"v.size == size", [](auto& a) { a.mean.size = 1; }},
       {"!args.sum.empty.. == norm", [](auto& a) { a.sum = {}; }},
       {"!args.d_branch.empty", [](auto& a) { a.d_branch = {}; }},
       {"args.partials.size >= ", [](auto& a) { --a.partials.size; }},
       {"args.d_branch.data != args.d_residual.data", [](auto& a) { a.d_branch.data = a.d_residual.data; }}});
}

TEST(RefusedShapesDeathTest, OfAttention) {
  Memory m;
  const std::vector<int32_t> queries = {0, 1, 3}, keys = {0, 2, 4}, from_one = {1, 2, 3}, falling = {0, 4, 3};
  const AttentionCapacity capacity{.query_rows = 3, .max_length = 2, .heads = 2, .head_width = 2};
  const Stream stream = Stream::Cpu(1);
  const AttentionForwardArgs forward{
      .shape = {.query_offsets = {queries.data(), 3}, .key_offsets = {keys.data(), 3}, .heads = 2},
      .q = m.Of(3, 4),
      .k = m.Of(4, 4),
      .v = m.Of(4, 4),
      .output = m.Of(3, 4),
      .log_sum_exp = m.Of(3, 2),
      .scratch = m.Of(AttentionScratch(stream, capacity))};
  ExpectRefused<AttentionForwardArgs>(
      AttentionForward, forward,
      {{"columns % shape.heads == 0", [](auto& a) { a.shape.heads = 3; }},
       {"offsets.0. == 0", [&](auto& a) { a.shape.query_offsets.data = from_one.data(); }},
       {"offsets.n. <= offsets", [&](auto& a) { a.shape.query_offsets.data = falling.data(); }},
       {"last == rows", [](auto& a) { a.k.rows = a.v.rows = 5; }},
       {"shape.query_offsets.size == shape.key_offsets.size",
        [](auto& a) { a.shape.query_offsets.size = 2, a.q.rows = 1; }},
       {"matrix.rows == rows", [](auto& a) { a.v.rows = 3; }},
       {"matrix.columns == columns", [](auto& a) { a.log_sum_exp.columns = 1; }},
       {"matrix.rows == rows", [](auto& a) { a.output.rows = 2; }},
       {"args.scratch.size >= ", [](auto& a) { --a.scratch.size; }},
       {"2 vs. 1", [&](auto& a) { a.shape.rotary.table = m.Of(1, 2); }},
       {"4 vs. 2", [&](auto& a) { a.shape.rotary.table = m.Of(2, 4); }},
       {"65536 vs. 65536", [](auto& a) { a.dropout.threshold = 65536; }}});
  AttentionBackwardArgs backward{.shape = forward.shape, .q = forward.q, .k = forward.k, .v = forward.v};
  backward.log_sum_exp = forward.log_sum_exp, backward.scratch = forward.scratch, backward.d_output = m.Of(3, 4);
  backward.d_q = m.Of(3, 4), backward.d_k = m.Of(4, 4), backward.d_v = m.Of(4, 4);
  ExpectRefused<AttentionBackwardArgs>(AttentionBackward, backward,
                                       {{"matrix.rows == rows", [](auto& a) { a.d_output.rows = 2; }},
                                        {"matrix.columns == columns", [](auto& a) { a.d_q.columns = 3; }},
                                        {"matrix.rows == rows", [](auto& a) { a.d_k.rows = 3; }},
                                        {"matrix.rows == rows", [](auto& a) { a.d_v.rows = 3; }}});
}

TEST(RefusedShapesDeathTest, OfTheEmbedding) {
  Memory m;
  const std::vector<int32_t> tokens = {1, 4, 0}, offsets = {0, 2, 3}, below = {1, -1, 0}, from_one = {1, 2, 3},
                             row_positions = {0, 1, 0};
  const EmbeddingForwardArgs forward{.tokens = {tokens.data(), 3},
                                     .offsets = {offsets.data(), 3},
                                     .table = m.Of(5, 4),
                                     .positions = m.Of(2, 4),
                                     .x = m.Of(3, 4)};
  ExpectRefused<EmbeddingForwardArgs>(
      EmbeddingForward, forward,
      {{"4 vs. 4", [](auto& a) { a.table.rows = 4; }},
       {"2 vs. 1", [](auto& a) { a.positions.rows = 1; }},
       {"1 vs. 1",
        [&](auto& a) {
          a.row_positions = {row_positions.data(), 3}, a.positions.rows = 1;
        }},
       {"args.x.rows == args.tokens.size", [](auto& a) { a.x.rows = 2; }},
       {"args.table.columns == args.x.columns", [](auto& a) { a.table.columns = 3; }},
       {"args.positions.columns == args.x.columns", [](auto& a) { a.positions.columns = 3; }},
       {"offsets.0. == 0", [&](auto& a) { a.offsets.data = from_one.data(); }},
       {"last == rows", [](auto& a) { a.offsets.size = 2; }},
       {"tokens.row. >= ", [&](auto& a) { a.tokens.data = below.data(); }}});
  const EmbeddingBackwardArgs backward{.tokens = forward.tokens, .dx = m.Of(3, 4), .d_table = m.Of(5, 4)};
  ExpectRefused<EmbeddingBackwardArgs>(
      EmbeddingBackward, backward,
      {{"args.dx.rows == args.tokens.size", [](auto& a) { a.dx.rows = 2; }},
       {"args.d_table.columns == args.dx.columns", [](auto& a) { a.d_table.columns = 3; }},
       {"tokens.row. < rows", [](auto& a) { a.d_table.rows = 4; }}});
}

TEST(RefusedShapesDeathTest, OfTheLossAndTheCandidates) {
  Memory m;
  const std::vector<int32_t> targets = {1, 4}, above = {1, 5}, below = {-1, 4};
  const CrossEntropyArgs loss{
      .logits = m.Of(2, 5), .targets = {targets.data(), 2}, .gradient_scale = 1, .loss = m.Of(2), .nll = m.Of(2)};
  ExpectRefused<CrossEntropyArgs>(CrossEntropy, loss,
                                  {{"5 vs. 5", [&](auto& a) { a.targets.data = above.data(); }},
                                   {"-1 vs. 0", [&](auto& a) { a.targets.data = below.data(); }},
                                   {"args.targets.size == args.logits.rows", [](auto& a) { a.targets.size = 1; }},
                                   {"args.loss.size == args.logits.rows", [](auto& a) { a.loss.size = 1; }},
                                   {"args.nll.size == args.logits.rows", [](auto& a) { a.nll.size = 1; }},
                                   {"args.z_loss >= 0", [](auto& a) { a.z_loss = -1; }},
                                   {"args.label_smoothing < 1", [](auto& a) { a.label_smoothing = 1; }}});
  std::vector<int32_t> tokens(6), best(2);
  const TopCandidatesArgs candidates{.logits = m.Of(2, 5),
                                     .also = 4,
                                     .tokens = {tokens.data(), 2, 3},
                                     .values = m.Of(2, 3),
                                     .also_values = m.Of(2),
                                     .best = {best.data(), 2}};
  ExpectRefused<TopCandidatesArgs>(
      TopCandidates, candidates,
      {{"args.tokens.rows == args.logits.rows", [](auto& a) { a.tokens.rows = 1; }},
       {"args.values.rows == args.tokens.rows", [](auto& a) { a.values.rows = 1; }},
       {"args.values.columns == args.tokens.columns", [](auto& a) { a.values.columns = 2; }},
       {"args.also_values.size == args.logits.rows", [](auto& a) { a.also_values.size = 1; }},
       {"args.best.size == args.logits.rows", [](auto& a) { a.best.size = 1; }},
       {"args.also < args.logits.columns", [](auto& a) { a.also = 5; }},
       {"args.also >= 0", [](auto& a) { a.also = -1; }}});
}

TEST(RefusedShapesDeathTest, OfScalesAndSums) {
  Memory m;
  const ShiftScaleForwardArgs shift{.x = m.Of(2, 6), .shift = m.Of(1), .y = m.Of(2, 6)};
  ExpectRefused<ShiftScaleForwardArgs>(ShiftScaleForward, shift, {{"2 vs. 1", [](auto& a) { a.shift.size = 2; }}});
  const HeadScaleForwardArgs heads{.x = m.Of(2, 6), .gain = m.Of(3), .y = m.Of(2, 6)};
  ExpectRefused<HeadScaleForwardArgs>(HeadScaleForward, heads, {{"2 vs. 0", [](auto& a) { a.gain.size = 4; }}});
  ShiftScaleBackwardArgs shift_back{.dy = m.Of(2, 6), .x = m.Of(2, 6), .shift = m.Of(1), .scale = m.Of(1)};
  shift_back.dx = m.Of(2, 6), shift_back.d_shift = m.Of(1), shift_back.d_scale = m.Of(1);
  shift_back.partials = m.Of(ShiftScalePartials(2));
  ExpectRefused<ShiftScaleBackwardArgs>(
      ShiftScaleBackward, shift_back,
      {{"args.d_scale.empty.. == args.scale.empty", [](auto& a) { a.d_scale = {}; }},
       {"args.dx.data != args.dy.data", [](auto& a) { a.dx.data = const_cast<void*>(a.dy.data), a.accumulate = true; }},
       {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  HeadScaleBackwardArgs heads_back{.dy = m.Of(2, 6), .x = m.Of(2, 6), .gain = m.Of(3), .dx = m.Of(2, 6)};
  heads_back.d_gain = m.Of(3), heads_back.partials = m.Of(HeadScalePartials(2, 3));
  ExpectRefused<HeadScaleBackwardArgs>(HeadScaleBackward, heads_back,
                                       {{"args.d_gain.size == ", [](auto& a) { a.d_gain.size = 2; }},
                                        {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  HeadNormBackwardArgs norms_back{.dy = m.Of(2, 6), .x = m.Of(2, 6), .scale = m.Of(3), .dx = m.Of(2, 6)};
  norms_back.d_scale = m.Of(3), norms_back.d_shift = m.Of(3), norms_back.partials = m.Of(HeadNormPartials(2, 3));
  ExpectRefused<HeadNormBackwardArgs>(HeadNormBackward, norms_back,
                                      {{"args.d_scale.size == ", [](auto& a) { a.d_scale.size = 2; }},
                                       {"args.d_shift.size == ", [](auto& a) { a.d_shift.size = 2; }},
                                       {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  const WeightedSumBackwardArgs sum_back{.dy = m.Of(2, 2),
                                         .x = m.Of(6, 2),
                                         .weights = m.Of(3),
                                         .dx = m.Of(6, 2),
                                         .d_weights = m.Of(3),
                                         .partials = m.Of(WeightedSumPartials(2, 3))};
  ExpectRefused<WeightedSumBackwardArgs>(WeightedSumBackward, sum_back,
                                         {{"5 vs. 6", [](auto& a) { a.dx.rows = 5; }},
                                          {"args.d_weights.size == ", [](auto& a) { a.d_weights.size = 2; }},
                                          {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  const WeightedSumForwardArgs sum{.x = m.Of(6, 2), .weights = m.Of(3), .y = m.Of(2, 2)};
  ExpectRefused<WeightedSumForwardArgs>(WeightedSumForward, sum, {{"5 vs. 6", [](auto& a) { a.x.rows = 5; }}});
  const ConvertArgs convert{.from = m.Of(1, 4), .to = m.Of(1, 4)};
  ExpectRefused<ConvertArgs>(
      Convert, convert, {{"rows", [](auto& a) { a.to.rows = 2; }}, {"data", [](auto& a) { a.from.data = a.to.data; }}});
}

TEST(RefusedShapesDeathTest, OfActivations) {
  Memory m;
  const ActivationForwardArgs forward{.gated = true, .z = m.Of(2, 6), .y = m.Of(2, 3)};
  ExpectRefused<ActivationForwardArgs>(ActivationForward, forward,
                                       {{"z.columns == ", [](auto& a) { a.gated = false; }},
                                        {"z.rows == y.rows", [](auto& a) { a.y.rows = 1; }},
                                        {"z.storage == y.storage", [](auto& a) { a.y.storage = Storage::kBFloat16; }}});
  const ActivationBackwardArgs backward{.z = m.Of(2, 3), .dy = m.Of(2, 3), .dz = m.Of(2, 3)};
  ExpectRefused<ActivationBackwardArgs>(ActivationBackward, backward, {{"2 vs. 3", [](auto& a) { a.dz.columns = 2; }}});
  const GluBackwardArgs glu{
      .dy = m.Of(2, 3), .value = m.Of(2, 3), .gate = m.Of(2, 3), .d_value = m.Of(2, 3), .d_gate = m.Of(2, 3)};
  ExpectRefused<GluBackwardArgs>(
      GluBackward, glu,
      {{"1 vs. 2", [](auto& a) { a.gate.rows = 1; }}, {"2 vs. 3", [](auto& a) { a.d_gate.columns = 2; }}});
}

// Two streams of width 3: each has 8 logits and 8 maps.
TEST(RefusedShapesDeathTest, OfSeveralStreams) {
  Memory m;
  const HyperReadForwardArgs read{.x = m.Of(2, 6),
                                  .projected = m.Of(2, 8),
                                  .gates = m.Of(3),
                                  .bias = m.Of(8),
                                  .maps = m.Of(2, 8),
                                  .rstd = m.Of(2),
                                  .u = m.Of(2, 3)};
  ExpectRefused<HyperReadForwardArgs>(HyperReadForward, read,
                                      {{"5 vs. 4", [](auto& a) { a.x.columns = 5, a.u.columns = 2; }},
                                       {"7 vs. 8", [](auto& a) { a.projected.columns = 7; }},
                                       {"args.gates.size == ", [](auto& a) { a.gates.size = 2; }},
                                       {"args.bias.size == logits", [](auto& a) { a.bias.size = 7; }},
                                       {"args.rstd.size == ", [](auto& a) { a.rstd.size = 1; }}});
  const HyperWriteForwardArgs write{.x = m.Of(2, 6), .maps = read.maps, .f = m.Of(2, 3), .y = m.Of(2, 6)};
  ExpectRefused<HyperWriteForwardArgs>(HyperWriteForward, write,
                                       {{"7 vs. 8", [](auto& a) { a.maps.columns = 7; }},
                                        {"args.y.data != args.x.data", [](auto& a) { a.x.data = a.y.data; }}});
  HyperReadBackwardArgs back{.du = m.Of(2, 3), .x = read.x, .projected = read.projected, .maps = read.maps};
  back.rstd = read.rstd, back.gates = read.gates, back.bias = read.bias, back.d_maps = m.Of(2, 8);
  back.d_projected = m.Of(2, 8), back.dx = m.Of(2, 6), back.d_gates = m.Of(3), back.d_bias = m.Of(8);
  back.partials = m.Of(HyperPartials(2, 8));
  ExpectRefused<HyperReadBackwardArgs>(HyperReadBackward, back,
                                       {{"args.d_gates.size == ", [](auto& a) { a.d_gates.size = 2; }},
                                        {"args.d_bias.size == logits", [](auto& a) { a.d_bias.size = 7; }},
                                        {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  const CopyToResidualsArgs copy{.x = m.Of(2, 3), .y = m.Of(2, 6)};
  ExpectRefused<CopyToResidualsArgs>(CopyToResiduals, copy,
                                     {{"args.y.data != args.x.data", [](auto& a) { a.x.data = a.y.data; }}});
  const SumResidualsArgs sum{.x = m.Of(2, 6), .y = m.Of(2, 3)};
  ExpectRefused<SumResidualsArgs>(SumResiduals, sum,
                                  {{"args.y.data != args.x.data", [](auto& a) { a.x.data = a.y.data; }}});
}

TEST(RefusedShapesDeathTest, OfTheUpdateAndItsSums) {
  Memory m;
  const AdamArgs adam{.parameter = m.Of(3), .gradient = m.Of(3), .first_moment = m.Of(3), .second_moment = m.Of(3)};
  BFloat16 rounded[3];
  ExpectRefused<AdamArgs>(
      AdamStep, adam,
      {{"args.gradient.size == args.parameter.size", [](auto& a) { a.gradient.size = 2; }},
       {"args.first_moment.size == args.parameter.size", [](auto& a) { a.first_moment.size = 2; }},
       {"args.second_moment.size == args.parameter.size", [](auto& a) { a.second_moment.size = 2; }},
       {"args.update >= 1", [](auto& a) { a.update = 0; }},
       {"args.beta1 < 1", [](auto& a) { a.beta1 = 1; }},
       {"args.beta2 < 1", [](auto& a) { a.beta2 = 1; }},
       {"args.epsilon >= 0", [](auto& a) { a.epsilon = -1e-8; }},
       {"args.rounded.empty", [&](auto& a) {
          a.rounded = {rounded, 3};
        }}});
  const MuonMomentumArgs momentum{.gradient = m.Of(3), .momentum = m.Of(3)};
  ExpectRefused<MuonMomentumArgs>(MuonMomentum, momentum,
                                  {{"args.momentum.size == args.gradient.size", [](auto& a) { a.momentum.size = 2; }},
                                   {"args.decay < 1", [](auto& a) { a.decay = 1; }}});
  const MuonStepArgs step{.parameter = m.Of(3), .direction = m.Of(3)};
  ExpectRefused<MuonStepArgs>(MuonStep, step,
                              {{"args.direction.size == args.parameter.size", [](auto& a) { a.direction.size = 2; }}});
  const OrthogonalizeArgs whole{.u = m.Of(2, 2), .workspace = m.Of(OrthogonalizeFloats(2, 2, Storage::kFloat32))};
  ExpectRefused<OrthogonalizeArgs>(Orthogonalize, whole,
                                   {{"args.u.stride == args.u.columns", [](auto& a) { a.u.stride = 3; }},
                                    {"args.iteration.steps >= 1", [](auto& a) { a.iteration.steps = 0; }},
                                    {"args.workspace.size", [](auto& a) { --a.workspace.size; }}});
  const AddArgs add{.sum = m.Of(3), .values = m.Of(3)};
  ExpectRefused<AddArgs>(Add, add, {{"args.values.size == args.sum.size", [](auto& a) { a.values.size = 2; }}});
  const SquaresSlice slices[] = {{.x = add.sum}};
  double sums[1];
  const SumsOfSquaresArgs squares{.slices = slices, .sums = sums};
  ExpectRefused<SumsOfSquaresArgs>(SumsOfSquares, squares,
                                   {{"args.sums.size.. == args.slices.size", [](auto& a) { a.sums = {}; }}});
}

}  // namespace
}  // namespace hadal
