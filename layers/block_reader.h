// What the sublayers of a stack read in place of a residual stream: softmaxes over the embedding and the sums of blocks
// of sublayers (Attention Residuals, arXiv 2603.15031; Delta Attention Residuals, arXiv 2605.18855).
//
//   V_0 the embedding; V_n = Σ f_s over the sublayers s of block n; P the open block's sum so far
//   sublayer s            h_s = its read of V_0 … V_{n−1} and P (kernels/attention_residual.h: replacing, or adding);
//                         f_s = b·dropout(F(k·LN(h_s)) + bias); the block's first: P = f_s, the others: P += f_s
//   stack's first         h = V_0; it has no query
//   behind the stack      y = LN(h), h = a read of all V_j, with a query of its own; of the adding form LN(Σ_j V_j)
// Blocks are counted in sublayers (ModelPlan::BlockSublayers). Ours: each stack of an encoder-decoder has its own
// sources, and cross-attention is a sublayer like the others.
// V_0 … V_{n−1} are the stack's *history*, one matrix stacked by rows (as layer_combination.h's). Its gradient has
// several readers, which add to it in descending order; fp32, as everything here but LN(h) and y.
// Parameters of a reader: w from 0, g from 1 (`…_res_proj.weight`, `…_res_norm.weight`).
// Thread safety: const after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention_residual.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"

namespace hadal {

// The readers that see the same history: consecutive sublayers of a block, or what follows the stack. One pass over the
// history serves them all (for each kMostReaders of them).
class BlockReader {
 public:
  // REQUIRES: sublayers [first, last) are in one block of a stack that reads blocks.
  BlockReader(const ModelPlan& plan, int32_t first, int32_t last);
  // What follows the stack whose last sublayer is `last`.
  static BlockReader Behind(const ModelPlan& plan, int32_t last);

  int64_t readers() const { return std::ssize(queries_); }
  int64_t sources() const { return sources_; }

  // What a read keeps for its backward, of `rows` rows (R); K sources, Q readers.
  struct Saved {
    Matrix read;                          // h [Q·R, d]; in backward its gradient
    Matrix logits, d_logits, statistics;  // [Q·R, K] twice, [Q·R, kReaderStatistics]
    Vector inverse_rms;                   // [K·R]
    int64_t bytes = 0;

    Matrix ReadOf(int64_t reader, int64_t rows) const { return read.Rows(reader * rows, rows); }
  };
  Saved At(std::byte* memory, int64_t rows) const;

  // Writes every reader's part from the history [K·R, d]; then a reader whose open sum is not empty adds that.
  void ReadSources(const Stream& stream, const ParameterStore& parameters, ConstMatrix history,
                   const Saved& saved) const;
  void ReadOpen(const Stream& stream, const ParameterStore& parameters, int64_t reader, ConstMatrix open,
                const Saved& saved) const;
  // Backward, of each reader in descending order, then of all: d_open and d_history are added to. `dh` [R, d].
  // REQUIRES: `open` as in forward.
  void ReadOpenBackward(const SublayerContext& context, int64_t reader, ConstMatrix open, ConstMatrix dh, Matrix d_open,
                        const Saved& saved) const;
  void ReadSourcesBackward(const SublayerContext& context, ConstMatrix history, Matrix d_history,
                           const Saved& saved) const;

 private:
  BlockReader(const ModelPlan& plan, Stack stack, int64_t sources);
  SourceReader ReaderOf(const ParameterStore& parameters, int64_t reader, bool gradients) const;
  // Calls call(readers, first row of Q·R, rows) for groups of at most kMostReaders, in descending order.
  template <typename Call>
  void InGroups(const ParameterStore& parameters, int64_t rows, bool gradients, const Call& call) const;

  std::vector<int32_t> queries_;  // parameters, the scale follows; −1: none
  int64_t sources_, d_model_;
  bool adds_;
  float epsilon_;
};

// The part after the stack: x the history, y [R, d] as products read it. Backward adds to d_x.
class BlockReadingEnd final : public ChunkPart {
 public:
  // For the stack whose last sublayer is `last`. `rows`: the capacity.
  BlockReadingEnd(const ModelPlan& plan, int32_t last, int64_t rows);

  int64_t saved_bytes() const override { return Views(nullptr, rows_).bytes; }
  void Read(const Stream& stream, const ParameterStore& parameters, ConstMatrix history, std::byte* saved,
            AnyMatrix y) const;
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override {
    Read(context.stream, context.parameters, tensors.x.floats(), tensors.saved, tensors.y);
  }
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  struct Saved {
    BlockReader::Saved read;
    float* statistics = nullptr;
    int64_t bytes = 0;
  };
  Saved Views(std::byte* saved, int64_t rows) const;

  BlockReader reader_;
  PlainNorm norm_;
  int64_t rows_;
};

}  // namespace hadal
