// What the operations refuse before any backend sees it: shapes that do not belong together, outputs that lie on
// inputs, scratch that is too small. Each with what its dispatcher says, so that no accident further down counts.

#include "gtest/gtest.h"
#include "kernels/activation.h"
#include "kernels/adam.h"
#include "kernels/add.h"
#include "kernels/attention.h"
#include "kernels/attention_residual.h"
#include "kernels/cached_attention.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/head_norm.h"
#include "kernels/hyper_connection.h"
#include "kernels/linear.h"
#include "kernels/muon.h"
#include "kernels/orthogonalize.h"
#include "kernels/residual_norm.h"
#include "kernels/scatter_rows.h"
#include "kernels/shift_scale.h"
#include "kernels/sum_of_squares.h"
#include "kernels/top_candidates.h"
#include "kernels/unfold.h"
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
  std::byte mask{};
  const LinearForwardArgs forward{.x = m.Of(2, 3), .weight = m.Of(5, 3), .bias = m.Of(5), .y = m.Of(2, 5)};
  ExpectRefused<LinearForwardArgs>(
      LinearForward, forward,
      {{"3 vs. 4", [](auto& a) { a.weight.columns = a.weight.stride = 4; }},
       {"out.columns == weight.rows", [](auto& a) { a.y.columns = 4; }},
       {"out.rows == in.rows", [](auto& a) { a.y.rows = 1; }},
       {"args.bias.size == args.weight.rows", [](auto& a) { a.bias.size = 4; }},
       {"m.stride >= m.columns", [](auto& a) { a.x.stride = 2; }},
       {"m.stride >= m.columns", [](auto& a) { a.y.stride = 4; }},
       {"m.columns >= 1", [](auto& a) { a.weight.columns = a.x.columns = 0; }},
       {"!m.empty", [](auto& a) { a.weight.data = nullptr; }},
       {"stream.device.. != nullptr", [&](auto& a) { a.relu = true, a.relu_mask = &mask; }}});
  Matrix wide = m.Of(kPackedRows, 3);
  wide.stride = 4;
  EXPECT_DEATH(PackWeight(wide), "weight.stride == weight.columns");
  EXPECT_DEATH(PackWeight(m.Of(kPackedRows + 1, 3)), "weight.rows % kPackedRows == 0");
  const ReluMaskArgs unlike{.rows = 2, .hidden_weight = m.Of(5, 3), .contraction_weight = m.Of(2, 4)};
  EXPECT_DEATH(HasReluMask(Stream::Cpu(1), unlike), "args.contraction_weight.columns == ");
  const ReluBackwardArgs relu{.relu_output = m.Of(2, 3), .dx = m.Of(2, 3)};
  ExpectRefused<ReluBackwardArgs>(ReluBackward, relu,
                                  {{"1 vs. 2", [](auto& a) { a.relu_output.rows = 1; }},
                                   {"2 vs. 3", [](auto& a) { a.relu_output.columns = 2; }},
                                   {"m.stride >= m.columns", [](auto& a) { a.relu_output.stride = 2; }},
                                   {"m.stride >= m.columns", [](auto& a) { a.dx.stride = 2; }}});
  const LinearBackwardInputArgs input{
      .dy = m.Of(2, 5), .weight = forward.weight, .relu_output = m.Of(2, 3), .dx = m.Of(2, 3)};
  ExpectRefused<LinearBackwardInputArgs>(
      LinearBackwardInput, input,
      {{"out.columns == weight.rows", [](auto& a) { a.dy.columns = 4; }},
       {"in.columns == weight.columns", [](auto& a) { a.dx.columns = 2; }},
       {"out.rows == in.rows", [](auto& a) { a.dx.rows = 1; }},
       {"args.relu_output.rows == args.dx.rows", [](auto& a) { a.relu_output.rows = 1; }},
       {"args.relu_output.columns == args.dx.columns", [](auto& a) { a.relu_output.columns = 2; }},
       {"!args.accumulate", [](auto& a) { a.accumulate = true; }},
       {"args.relu_output.empty", [&](auto& a) { a.relu_mask = &mask; }},
       {"stream.device.. != nullptr", [&](auto& a) { a.relu_bias_gradient = m.Of(3); }}});
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
       {"args.normed.data != args.sum.data", [](auto& a) { a.sum.data = a.normed.data; }},
       {"!args.residual.empty", [](auto& a) { a.residual.data = nullptr; }},
       {"m.stride >= m.columns", [](auto& a) { a.residual.stride = 2; }},
       {"args.second_sum.empty.. ", [&](auto& a) { a.second_sum = m.Of(2, 3), a.branch = {}; }},
       {"args.second.empty.. ", [&](auto& a) { a.second = m.Of(2, 3); }},
       {"args.shift.empty.. ", [](auto& a) { a.scale = {}; }},
       {"v.size == size", [&](auto& a) { a.learned_branch_gain = m.Of(2); }},
       {"norm .. !args.sum.empty",
        [](auto& a) { a.scale = a.shift = {}, a.mean = a.rstd = {}, a.normed = {}, a.sum = {}; }}});
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
       {"args.d_branch.data != args.d_residual.data", [](auto& a) { a.d_branch.data = a.d_residual.data; }},
       {"args.d_second.empty.. ", [&](auto& a) { a.d_second = m.Of(2, 3), a.d_branch = {}; }},
       {"!args.second_starts ", [](auto& a) { a.second_starts = true; }},
       {"norm .. !args.d_sum.empty", [](auto& a) { a.d_normed = {}; }},
       {"!args.mean.empty.. == norm", [](auto& a) { a.mean = {}; }},
       {"!args.rstd.empty.. == norm", [](auto& a) { a.rstd = {}; }},
       {"!args.scale.empty.. == norm", [](auto& a) { a.scale = {}; }},
       {"!args.d_scale.empty.. == norm", [](auto& a) { a.d_scale = {}; }},
       {"args.d_shift.empty.. ",
        [](auto& a) { a.d_sum = a.d_normed, a.d_normed = a.sum = {}, a.mean = a.rstd = a.scale = {}, a.d_scale = {}; }},
       {"!args.d_learned_residual_gain.empty", [&](auto& a) { a.learned_residual_gain = m.Of(3); }},
       {"!args.d_learned_branch_gain.empty", [&](auto& a) { a.learned_branch_gain = m.Of(1); }},
       {"!args.residual.empty", [&](auto& a) { a.learned_residual_gain = a.d_learned_residual_gain = m.Of(3); }},
       {"!args.branch.empty", [&](auto& a) { a.learned_branch_gain = a.d_learned_branch_gain = m.Of(1); }}});
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
       {"65536 vs. 65536", [](auto& a) { a.dropout.threshold = 65536; }},
       {"offsets.size >= 1", [](auto& a) { a.shape.query_offsets.size = 0; }},
       {"columns >= shape.heads", [](auto& a) { a.q.columns = 0; }},
       {"matrix.stride >= columns", [](auto& a) { a.q.stride = 3; }},
       {"shape.heads >= 1", [](auto& a) { a.shape.heads = 0; }},
       {"shape.heads % shape.group", [](auto& a) { a.shape.group = 3; }},
       {"shape.reach >= 0", [](auto& a) { a.shape.reach = -1; }},
       {"1 vs. 2", [](auto& a) { a.shape.reach = 1; }},
       {"matrix.stride >= columns", [](auto& a) { a.k.stride = 3; }}});
  AttentionBackwardArgs backward{.shape = forward.shape, .q = forward.q, .k = forward.k, .v = forward.v};
  backward.log_sum_exp = forward.log_sum_exp, backward.scratch = forward.scratch, backward.d_output = m.Of(3, 4);
  backward.d_q = m.Of(3, 4), backward.d_k = m.Of(4, 4), backward.d_v = m.Of(4, 4);
  ExpectRefused<AttentionBackwardArgs>(AttentionBackward, backward,
                                       {{"matrix.rows == rows", [](auto& a) { a.d_output.rows = 2; }},
                                        {"matrix.columns == columns", [](auto& a) { a.d_q.columns = 3; }},
                                        {"matrix.rows == rows", [](auto& a) { a.d_k.rows = 3; }},
                                        {"matrix.rows == rows", [](auto& a) { a.d_v.rows = 3; }}});
}

TEST(RefusedShapesDeathTest, OfCachedAttention) {
  Memory m;
  const std::vector<int32_t> index = {0, 1, 2, 3}, lengths = {2, 1};
  const CachedAttentionArgs good{.q = m.Of(2, 4),
                                 .cache = m.Of(4, 8),
                                 .index = {index.data(), 4},
                                 .index_stride = 2,
                                 .lengths = {lengths.data(), 2},
                                 .heads = 2,
                                 .output = m.Of(2, 4),
                                 .scratch = m.Of(CachedAttentionScratch(Stream::Cpu(1), 2, 2))};
  ExpectRefused<CachedAttentionArgs>(CachedAttention, good,
                                     {{"args.heads >= 1", [](auto& a) { a.heads = 0; }},
                                      {"args.q.columns % args.heads == 0", [](auto& a) { a.heads = 3; }},
                                      {"args.heads % args.group == 0", [](auto& a) { a.group = 3; }},
                                      {"7 vs. 8", [](auto& a) { a.cache.columns = 7; }},
                                      {"args.output.rows == rows", [](auto& a) { a.output.rows = 1; }},
                                      {"args.output.columns == args.q.columns", [](auto& a) { a.output.columns = 3; }},
                                      {"args.lengths.size == rows", [](auto& a) { a.lengths.size = 1; }},
                                      {"args.index.size >= ", [](auto& a) { a.index.size = 3; }},
                                      {"args.reach >= 0", [](auto& a) { a.reach = -1; }},
                                      {"args.cache.storage == ", [](auto& a) { a.cache.storage = Storage::kBFloat16; }},
                                      {"2 vs. 1", [&](auto& a) { a.rotary.table = m.Of(1, 2); }},
                                      {"args.scratch.size >= ", [](auto& a) { --a.scratch.size; }}});
}

// Three sources of two rows, read by two readers, the first of which has no query.
TEST(RefusedShapesDeathTest, OfReadersOfSources) {
  Memory m;
  const SourceReader reader{.query = m.Of(4), .scale = m.Of(4), .d_query = m.Of(4), .d_scale = m.Of(4)};
  SourceReader narrow = reader, no_scale = reader, no_gradient = reader;
  narrow.query.size = narrow.scale.size = 3, no_scale.scale = {}, no_gradient.d_query = {};
  const SourceReader readers[] = {{}, reader}, narrow_ones[] = {{}, narrow}, without_scale[] = {{}, no_scale},
                     without_gradient[] = {{}, no_gradient};
  const std::vector<SourceReader> many(kMostReaders + 1, reader);
  const ReadSourcesForwardArgs forward{.x = m.Of(6, 4),
                                       .readers = readers,
                                       .inverse_rms = m.Of(6),
                                       .logits = m.Of(4, 3),
                                       .statistics = m.Of(4, kReaderStatistics),
                                       .y = m.Of(4, 4)};
  ExpectRefused<ReadSourcesForwardArgs>(ReadSourcesForward, forward,
                                        {{"readers >= 1", [](auto& a) { a.readers = {}; }},
                                         {"3 vs. 2", [](auto& a) { a.y.rows = 3; }},
                                         {"17 vs. 16", [&](auto& a) { a.readers = many; }},
                                         {"sources >= 1", [](auto& a) { a.x.rows = 1; }},
                                         {"5 vs. 4", [](auto& a) { a.x.rows = 5; }},
                                         {"2 vs. 3", [](auto& a) { a.logits.columns = 2; }},
                                         {"3 vs. 4", [](auto& a) { a.statistics.rows = 3; }},
                                         {"inverse_rms.size == x.rows", [](auto& a) { a.inverse_rms.size = 5; }},
                                         {"reader.query.size == ", [&](auto& a) { a.readers = narrow_ones; }},
                                         {"reader.scale.size == ", [&](auto& a) { a.readers = without_scale; }}});
  ReadSourcesBackwardArgs backward{.dh = m.Of(4, 4), .x = forward.x, .readers = readers};
  backward.inverse_rms = forward.inverse_rms, backward.logits = forward.logits;
  backward.statistics = forward.statistics, backward.d_logits = m.Of(4, 3), backward.dx = m.Of(6, 4);
  backward.partials = m.Of(ReaderPartials(2, 4, 2));
  ExpectRefused<ReadSourcesBackwardArgs>(ReadSourcesBackward, backward,
                                         {{"2 vs. 3", [](auto& a) { a.d_logits.columns = 2; }},
                                          {"5 vs. 6", [](auto& a) { a.dx.rows = 5; }},
                                          {"reader.d_query.size == ", [&](auto& a) { a.readers = without_gradient; }},
                                          {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  const ReadOpenForwardArgs open{
      .open = m.Of(2, 4), .reader = reader, .statistics = m.Of(2, kReaderStatistics), .y = m.Of(2, 4)};
  ExpectRefused<ReadOpenForwardArgs>(ReadOpenForward, open,
                                     {{"1 vs. 2", [](auto& a) { a.open.rows = 1; }},
                                      {"5 vs. 6", [](auto& a) { a.statistics.columns = 5; }},
                                      {"reader.query.size == ", [&](auto& a) { a.reader = narrow; }}});
  ReadOpenBackwardArgs back{.dh = m.Of(2, 4), .open = open.open, .reader = reader, .statistics = open.statistics};
  back.h = m.Of(2, 4), back.d_open = m.Of(2, 4), back.partials = m.Of(ReaderPartials(2, 4, 1));
  ExpectRefused<ReadOpenBackwardArgs>(ReadOpenBackward, back,
                                      {{"1 vs. 2", [](auto& a) { a.d_open.rows = 1; }},
                                       {"5 vs. 6", [](auto& a) { a.statistics.columns = 5; }},
                                       {"reader.d_scale.size == ", [](auto& a) { a.reader.d_scale.size = 3; }},
                                       {"reader.query.size == ", [&](auto& a) { a.reader = narrow; }},
                                       {"reader.d_query.size == ", [&](auto& a) { a.reader = no_gradient; }},
                                       {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
}

TEST(RefusedShapesDeathTest, OfTheEmbedding) {
  Memory m;
  const std::vector<int32_t> tokens = {1, 4, 0}, offsets = {0, 2, 3}, below = {1, -1, 0}, from_one = {1, 2, 3},
                             row_positions = {0, 1, 0}, turned = {0, 2, 1, 3};
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
       {"offsets.size >= 2", [](auto& a) { a.offsets.size = 1; }},
       {"2 vs. 1",
        [&](auto& a) {
          a.offsets = {turned.data(), 4};
        }},
       {"args.row_positions.size == ",
        [&](auto& a) {
          a.row_positions = {row_positions.data(), 2};
        }},
       {"tokens.row. >= ", [&](auto& a) { a.tokens.data = below.data(); }}});
  const EmbeddingBackwardArgs backward{.tokens = forward.tokens, .dx = m.Of(3, 4), .d_table = m.Of(5, 4)};
  ExpectRefused<EmbeddingBackwardArgs>(
      EmbeddingBackward, backward,
      {{"args.dx.rows == args.tokens.size", [](auto& a) { a.dx.rows = 2; }},
       {"args.d_table.columns == args.dx.columns", [](auto& a) { a.d_table.columns = 3; }},
       {"args.d_positions.columns == ", [&](auto& a) { a.offsets = forward.offsets, a.d_positions = m.Of(2, 3); }},
       {"2 vs. 1", [&](auto& a) { a.offsets = forward.offsets, a.d_positions = m.Of(1, 4); }},
       {"tokens.row. < rows", [](auto& a) { a.d_table.rows = 4; }}});
}

TEST(RefusedShapesDeathTest, OfTheLossAndTheCandidates) {
  Memory m;
  const std::vector<int32_t> targets = {1, 4}, above = {1, 5}, below = {-1, 4};
  const CrossEntropyArgs loss{
      .logits = m.Of(2, 5), .targets = {targets.data(), 2}, .gradient_scale = 1, .loss = m.Of(2), .nll = m.Of(2)};
  ExpectRefused<CrossEntropyArgs>(
      CrossEntropy, loss,
      {{"5 vs. 5", [&](auto& a) { a.targets.data = above.data(); }},
       {"-1 vs. 0", [&](auto& a) { a.targets.data = below.data(); }},
       {"args.targets.size == args.logits.rows", [](auto& a) { a.targets.size = 1; }},
       {"args.loss.size == args.logits.rows", [](auto& a) { a.loss.size = 1; }},
       {"args.nll.size == args.logits.rows", [](auto& a) { a.nll.size = 1; }},
       {"args.z_loss >= 0", [](auto& a) { a.z_loss = -1; }},
       {"args.label_smoothing < 1", [](auto& a) { a.label_smoothing = 1; }},
       {"args.hits.size == ", [&](auto& a) { a.hits = m.Of(1); }},
       {"args.logits.columns > 1", [](auto& a) { a.logits.columns = 1, a.label_smoothing = 0.1f; }},
       {"args.logits.stride >= ", [](auto& a) { a.logits.stride = 4; }}});
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
       {"args.also >= 0", [](auto& a) { a.also = -1; }},
       {"args.tokens.columns >= 1", [](auto& a) { a.tokens.columns = a.values.columns = 0; }}});
}

TEST(RefusedShapesDeathTest, OfScalesAndSums) {
  Memory m;
  const ShiftScaleForwardArgs shift{.x = m.Of(2, 6), .shift = m.Of(1), .y = m.Of(2, 6)};
  ExpectRefused<ShiftScaleForwardArgs>(ShiftScaleForward, shift,
                                       {{"2 vs. 1", [](auto& a) { a.shift.size = 2; }},
                                        {"2 vs. 1", [&](auto& a) { a.scale = m.Of(2); }},
                                        {"1 vs. 2", [](auto& a) { a.y.rows = 1; }}});
  const HeadScaleForwardArgs heads{.x = m.Of(2, 6), .gain = m.Of(3), .y = m.Of(2, 6)};
  ExpectRefused<HeadScaleForwardArgs>(HeadScaleForward, heads,
                                      {{"2 vs. 0", [](auto& a) { a.gain.size = 4; }},
                                       {"0 vs. 1", [](auto& a) { a.gain.size = 0; }},
                                       {"1 vs. 2", [](auto& a) { a.y.rows = 1; }}});
  ShiftScaleBackwardArgs shift_back{.dy = m.Of(2, 6), .x = m.Of(2, 6), .shift = m.Of(1), .scale = m.Of(1)};
  shift_back.dx = m.Of(2, 6), shift_back.d_shift = m.Of(1), shift_back.d_scale = m.Of(1);
  shift_back.partials = m.Of(ShiftScalePartials(2));
  ExpectRefused<ShiftScaleBackwardArgs>(
      ShiftScaleBackward, shift_back,
      {{"args.d_scale.empty.. == args.scale.empty", [](auto& a) { a.d_scale = {}; }},
       {"2 vs. 1", [](auto& a) { a.scale.size = 2; }},
       {"2 vs. 1", [](auto& a) { a.d_shift.size = 2; }},
       {"1 vs. 2", [](auto& a) { a.x.rows = 1; }},
       {"5 vs. 6", [](auto& a) { a.dx.columns = 5; }},
       {"args.dx.data != args.dy.data", [](auto& a) { a.dx.data = const_cast<void*>(a.dy.data), a.accumulate = true; }},
       {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  HeadScaleBackwardArgs heads_back{.dy = m.Of(2, 6), .x = m.Of(2, 6), .gain = m.Of(3), .dx = m.Of(2, 6)};
  heads_back.d_gain = m.Of(3), heads_back.partials = m.Of(HeadScalePartials(2, 3));
  ExpectRefused<HeadScaleBackwardArgs>(HeadScaleBackward, heads_back,
                                       {{"args.d_gain.size == ", [](auto& a) { a.d_gain.size = 2; }},
                                        {"2 vs. 0", [](auto& a) { a.gain.size = 4; }},
                                        {"1 vs. 2", [](auto& a) { a.x.rows = 1; }},
                                        {"5 vs. 6", [](auto& a) { a.dx.columns = 5; }},
                                        {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  const HeadNormForwardArgs norms{.x = m.Of(2, 6), .scale = m.Of(3), .shift = m.Of(3), .y = m.Of(2, 6)};
  ExpectRefused<HeadNormForwardArgs>(HeadNormForward, norms,
                                     {{"2 vs. 0", [](auto& a) { a.scale.size = 4; }},
                                      {"args.shift.size == ", [](auto& a) { a.shift.size = 2; }},
                                      {"1 vs. 2", [](auto& a) { a.y.rows = 1; }}});
  HeadNormBackwardArgs norms_back{.dy = m.Of(2, 6), .x = m.Of(2, 6), .scale = m.Of(3), .dx = m.Of(2, 6)};
  norms_back.d_scale = m.Of(3), norms_back.d_shift = m.Of(3), norms_back.partials = m.Of(HeadNormPartials(2, 3));
  ExpectRefused<HeadNormBackwardArgs>(HeadNormBackward, norms_back,
                                      {{"args.d_scale.size == ", [](auto& a) { a.d_scale.size = 2; }},
                                       {"args.d_shift.size == ", [](auto& a) { a.d_shift.size = 2; }},
                                       {"2 vs. 0", [](auto& a) { a.scale.size = 4; }},
                                       {"1 vs. 2", [](auto& a) { a.x.rows = 1; }},
                                       {"5 vs. 6", [](auto& a) { a.dx.columns = 5; }},
                                       {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  const WeightedSumBackwardArgs sum_back{.dy = m.Of(2, 2),
                                         .x = m.Of(6, 2),
                                         .weights = m.Of(3),
                                         .dx = m.Of(6, 2),
                                         .d_weights = m.Of(3),
                                         .partials = m.Of(WeightedSumPartials(2, 3))};
  ExpectRefused<WeightedSumBackwardArgs>(WeightedSumBackward, sum_back,
                                         {{"5 vs. 6", [](auto& a) { a.dx.rows = 5; }},
                                          {"5 vs. 6", [](auto& a) { a.x.rows = 5; }},
                                          {"args.weights.size >= 1", [](auto& a) { a.weights.size = 0; }},
                                          {"args.d_weights.size == ", [](auto& a) { a.d_weights.size = 2; }},
                                          {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  const WeightedSumForwardArgs sum{.x = m.Of(6, 2), .weights = m.Of(3), .y = m.Of(2, 2)};
  ExpectRefused<WeightedSumForwardArgs>(
      WeightedSumForward, sum,
      {{"5 vs. 6", [](auto& a) { a.x.rows = 5; }}, {"args.weights.size >= 1", [](auto& a) { a.weights.size = 0; }}});
  const ConvertArgs convert{.from = m.Of(1, 4), .to = m.Of(1, 4)};
  ExpectRefused<ConvertArgs>(Convert, convert,
                             {{"rows", [](auto& a) { a.to.rows = 2; }},
                              {"4 vs. 3", [](auto& a) { a.to.columns = 3; }},
                              {"data", [](auto& a) { a.from.data = a.to.data; }}});
}

TEST(RefusedShapesDeathTest, OfActivations) {
  Memory m;
  const ActivationForwardArgs forward{.gated = true, .z = m.Of(2, 6), .y = m.Of(2, 3)};
  ExpectRefused<ActivationForwardArgs>(ActivationForward, forward,
                                       {{"z.columns == ", [](auto& a) { a.gated = false; }},
                                        {"z.rows == y.rows", [](auto& a) { a.y.rows = 1; }},
                                        {"z.storage == y.storage", [](auto& a) { a.y.storage = Storage::kBFloat16; }}});
  const ActivationBackwardArgs backward{.z = m.Of(2, 3), .dy = m.Of(2, 3), .dz = m.Of(2, 3)};
  ExpectRefused<ActivationBackwardArgs>(
      ActivationBackward, backward,
      {{"2 vs. 3", [](auto& a) { a.dz.columns = 2; }}, {"2 vs. 3", [](auto& a) { a.z.columns = 2; }}});
  const GluForwardArgs gate{.value = m.Of(2, 3), .gate = m.Of(2, 3), .y = m.Of(2, 3)};
  ExpectRefused<GluForwardArgs>(
      GluForward, gate, {{"1 vs. 2", [](auto& a) { a.gate.rows = 1; }}, {"2 vs. 3", [](auto& a) { a.y.columns = 2; }}});
  const GluBackwardArgs glu{
      .dy = m.Of(2, 3), .value = m.Of(2, 3), .gate = m.Of(2, 3), .d_value = m.Of(2, 3), .d_gate = m.Of(2, 3)};
  ExpectRefused<GluBackwardArgs>(GluBackward, glu,
                                 {{"1 vs. 2", [](auto& a) { a.gate.rows = 1; }},
                                  {"1 vs. 2", [](auto& a) { a.dy.rows = 1; }},
                                  {"2 vs. 3", [](auto& a) { a.d_value.columns = 2; }},
                                  {"2 vs. 3", [](auto& a) { a.d_gate.columns = 2; }}});
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
  ExpectRefused<HyperReadForwardArgs>(
      HyperReadForward, read,
      {{"5 vs. 4", [](auto& a) { a.x.columns = 5, a.u.columns = 2; }},
       {"7 vs. 8", [](auto& a) { a.projected.columns = 7; }},
       {"7 vs. 8", [](auto& a) { a.maps.columns = 7; }},
       {"residuals >= 1", [](auto& a) { a.x.columns = 2; }},
       {"1 vs. 2", [](auto& a) { a.x.rows = 1; }},
       {"args.gates.size == ", [](auto& a) { a.gates.size = 2; }},
       {"args.bias.size == logits", [](auto& a) { a.bias.size = 7; }},
       {"args.rstd.size == ", [](auto& a) { a.rstd.size = 1; }},
       {"MostResiduals.args.mixing", [&](auto& a) { a.mixing = HyperMixing::kPermutations, a.x = m.Of(2, 15); }}});
  const HyperWriteForwardArgs write{.x = m.Of(2, 6), .maps = read.maps, .f = m.Of(2, 3), .y = m.Of(2, 6)};
  ExpectRefused<HyperWriteForwardArgs>(HyperWriteForward, write,
                                       {{"7 vs. 8", [](auto& a) { a.maps.columns = 7; }},
                                        {"5 vs. 6", [](auto& a) { a.y.columns = 5; }},
                                        {"args.y.data != args.x.data", [](auto& a) { a.x.data = a.y.data; }}});
  HyperWriteBackwardArgs write_back{.dy = m.Of(2, 6), .x = m.Of(2, 6), .maps = read.maps, .f = m.Of(2, 3)};
  write_back.dx = m.Of(2, 6), write_back.df = m.Of(2, 3), write_back.d_maps = m.Of(2, 8);
  ExpectRefused<HyperWriteBackwardArgs>(HyperWriteBackward, write_back,
                                        {{"7 vs. 8", [](auto& a) { a.maps.columns = 7; }},
                                         {"7 vs. 8", [](auto& a) { a.d_maps.columns = 7; }},
                                         {"5 vs. 6", [](auto& a) { a.dy.columns = 5; }},
                                         {"5 vs. 6", [](auto& a) { a.dx.columns = 5; }},
                                         {"1 vs. 2", [](auto& a) { a.df.rows = 1; }}});
  HyperReadBackwardArgs back{.du = m.Of(2, 3), .x = read.x, .projected = read.projected, .maps = read.maps};
  back.rstd = read.rstd, back.gates = read.gates, back.bias = read.bias, back.d_maps = m.Of(2, 8);
  back.d_projected = m.Of(2, 8), back.dx = m.Of(2, 6), back.d_gates = m.Of(3), back.d_bias = m.Of(8);
  back.partials = m.Of(HyperPartials(2, 8));
  ExpectRefused<HyperReadBackwardArgs>(
      HyperReadBackward, back,
      {{"args.d_gates.size == ", [](auto& a) { a.d_gates.size = 2; }},
       {"MostResiduals.args.mixing", [&](auto& a) { a.mixing = HyperMixing::kPermutations, a.x = m.Of(2, 15); }},
       {"7 vs. 8", [](auto& a) { a.projected.columns = 7; }},
       {"7 vs. 8", [](auto& a) { a.maps.columns = 7; }},
       {"7 vs. 8", [](auto& a) { a.d_maps.columns = 7; }},
       {"7 vs. 8", [](auto& a) { a.d_projected.columns = 7; }},
       {"5 vs. 6", [](auto& a) { a.dx.columns = 5; }},
       {"args.rstd.size == ", [](auto& a) { a.rstd.size = 1; }},
       {"args.d_bias.size == logits", [](auto& a) { a.d_bias.size = 7; }},
       {"args.partials.size >= ", [](auto& a) { --a.partials.size; }}});
  const CopyToResidualsArgs copy{.x = m.Of(2, 3), .y = m.Of(2, 6)};
  ExpectRefused<CopyToResidualsArgs>(CopyToResiduals, copy,
                                     {{"9 vs. 8", [&](auto& a) { a.y = m.Of(2, 27); }},
                                      {"args.y.data != args.x.data", [](auto& a) { a.x.data = a.y.data; }}});
  const SumResidualsArgs sum{.x = m.Of(2, 6), .y = m.Of(2, 3)};
  ExpectRefused<SumResidualsArgs>(SumResiduals, sum,
                                  {{"9 vs. 8", [&](auto& a) { a.x = m.Of(2, 27); }},
                                   {"one.columns >= 1", [](auto& a) { a.y.columns = 0; }},
                                   {"args.y.data != args.x.data", [](auto& a) { a.x.data = a.y.data; }}});
}

// Sentences of 3 and 2 rows of width 2, which become 2 rows and 1.
TEST(RefusedShapesDeathTest, OfTheConvolutionsRows) {
  Memory m;
  const std::vector<int32_t> x_offsets = {0, 3, 5}, u_offsets = {0, 2, 3}, other = {0, 1, 3};
  const UnfoldArgs unfold{
      .x = m.Of(5, 2), .x_offsets = {x_offsets.data(), 3}, .u_offsets = {u_offsets.data(), 3}, .u = m.Of(3, 10)};
  ExpectRefused<UnfoldArgs>(Unfold, unfold,
                            {{"9 vs. 10", [](auto& a) { a.u.columns = 9; }},
                             {"x_offsets.size == u_offsets.size", [](auto& a) { a.u_offsets.size = 2; }},
                             {"x_offsets.size >= 1", [](auto& a) { a.x_offsets.size = a.u_offsets.size = 0; }},
                             {"x_rows == x.rows", [](auto& a) { a.x.rows = 6; }},
                             {"4 vs. 3", [](auto& a) { a.first = 1; }},
                             {"1 vs. 2", [&](auto& a) { a.u_offsets.data = other.data(); }}});
  const FoldArgs fold{.du = unfold.u, .x_offsets = unfold.x_offsets, .u_offsets = unfold.u_offsets, .dx = m.Of(5, 2)};
  ExpectRefused<FoldArgs>(Fold, fold, {{"x_rows == x.rows", [](auto& a) { a.dx.rows = 4; }}});
}

TEST(RefusedShapesDeathTest, OfScatteredRows) {
  Memory m;
  const std::vector<int32_t> index = {0, 3}, positions = {0, 1};
  const ScatterRowsArgs good{.x = m.Of(2, 4),
                             .index = {index.data(), 2},
                             .y = m.Of(4, 4),
                             .rotary = {m.Of(2, 2)},
                             .turned_columns = 2,
                             .head_width = 2,
                             .positions = {positions.data(), 2}};
  ExpectRefused<ScatterRowsArgs>(ScatterRows, good,
                                 {{"args.y.storage == ", [](auto& a) { a.y.storage = Storage::kBFloat16; }},
                                  {"args.positions.size == ", [](auto& a) { a.positions.size = 1; }},
                                  {"2 vs. 1", [](auto& a) { a.head_width = 1; }},
                                  {"1 vs. 0", [](auto& a) { a.turned_columns = 3; }}});
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
       {"args.beta1 >= 0", [](auto& a) { a.beta1 = -0.5; }},
       {"args.beta2 < 1", [](auto& a) { a.beta2 = 1; }},
       {"args.beta2 >= 0", [](auto& a) { a.beta2 = -0.5; }},
       {"args.epsilon >= 0", [](auto& a) { a.epsilon = -1e-8; }},
       {"args.rounded.size == ",
        [&](auto& a) {
          a.rounded = {rounded, 2};
        }},
       {"args.rounded.empty", [&](auto& a) {
          a.rounded = {rounded, 3};
        }}});
  const MuonMomentumArgs momentum{.gradient = m.Of(3), .momentum = m.Of(3)};
  ExpectRefused<MuonMomentumArgs>(MuonMomentum, momentum,
                                  {{"args.momentum.size == args.gradient.size", [](auto& a) { a.momentum.size = 2; }},
                                   {"args.decay < 1", [](auto& a) { a.decay = 1; }},
                                   {"args.decay >= 0", [](auto& a) { a.decay = -0.5; }}});
  const MuonStepArgs step{.parameter = m.Of(3), .direction = m.Of(3)};
  ExpectRefused<MuonStepArgs>(MuonStep, step,
                              {{"args.direction.size == args.parameter.size", [](auto& a) { a.direction.size = 2; }},
                               {"args.rounded.empty", [&](auto& a) {
                                  a.rounded = {rounded, 3};
                                }}});
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
