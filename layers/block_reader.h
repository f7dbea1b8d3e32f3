// Computes what a sublayer reads in place of a residual stream: a softmax over the embedding and the sums of blocks of
// sublayers (Attention Residuals, arXiv 2603.15031; Delta Attention Residuals, arXiv 2605.18855).
//
//   V_0 is the embedding; V_j = Σ f_s over the sublayers s of block j ≥ 1; block n is open, P is its sum so far
//   sublayer s            h_s = its read of V_0 … V_{n−1} and P, in the replacing or the adding form
//                         (kernels/attention_residual.h); f_s = b·dropout(F(k·LN(h_s)) + bias);
//                         then P = f_s if s is the block's first sublayer, else P += f_s
//   first of the stack    h = V_0; this sublayer has no query
//   after the stack       y = LN(h); replacing: h is a read of all V_j with a query of its own; adding: h = Σ_j V_j
// A block's length is a number of sublayers (ModelPlan::BlockSublayers). Ours, not the papers': each stack of an
// encoder-decoder has its own sources, and cross-attention is a sublayer like the others.
// V_0 … V_{n−1} are the stack's *history*, one matrix stacked by rows (as in layer_combination.h). Several sublayers
// read it; they add to its gradient in descending order. All tensors here are fp32 except LN(h) and y.
// A reader's parameters: query w, initially 0 (`…_res_proj.weight`); scale g, initially 1 (`…_res_norm.weight`).
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

// Readers of the same history: consecutive sublayers of one block, or the single reader after the stack. One pass over
// the history serves up to kMostReaders of them.
class BlockReader {
 public:
  // REQUIRES: sublayers [first, last) are in one block of a stack that reads blocks.
  BlockReader(const ModelPlan& plan, int32_t first, int32_t last);
  // Returns the reader after the stack whose last sublayer is `last`.
  static BlockReader Behind(const ModelPlan& plan, int32_t last);

  int64_t readers() const { return std::ssize(queries_); }
  int64_t sources() const { return sources_; }

  // What forward keeps for backward, of R = `rows` rows; K = sources(), Q = readers(). At(nullptr, …) only gives bytes.
  struct Saved {
    Matrix read;                          // h [Q·R, d]; ReadOpenBackward replaces it by its gradient
    Matrix logits, d_logits, statistics;  // [Q·R, K] twice, [Q·R, kReaderStatistics]
    Vector inverse_rms;                   // [K·R]
    int64_t bytes = 0;

    Matrix ReadOf(int64_t reader, int64_t rows) const { return read.Rows(reader * rows, rows); }
  };
  Saved At(std::byte* memory, int64_t rows) const;

  // Forward: ReadSources writes all readers' h from `history` [K·R, d] alone. Then ReadOpen includes P, `open` [R, d],
  // in the h of one reader; it does nothing if `open` is empty (the reader is the block's first sublayer).
  void ReadSources(const Stream& stream, const ParameterStore& parameters, ConstMatrix history,
                   const Saved& saved) const;
  void ReadOpen(const Stream& stream, const ParameterStore& parameters, int64_t reader, ConstMatrix open,
                const Saved& saved) const;
  // Backward: ReadOpenBackward for each reader in descending order, then ReadSourcesBackward once for all readers. They
  // add to d_open and d_history. `dh`: gradient of the reader's h, [R, d]. REQUIRES: `open` as in forward.
  void ReadOpenBackward(const SublayerContext& context, int64_t reader, ConstMatrix open, ConstMatrix dh, Matrix d_open,
                        const Saved& saved) const;
  void ReadSourcesBackward(const SublayerContext& context, ConstMatrix history, Matrix d_history,
                           const Saved& saved) const;

 private:
  BlockReader(const ModelPlan& plan, Stack stack, int64_t sources);
  SourceReader ReaderOf(const ParameterStore& parameters, int64_t reader, bool gradients) const;
  // Calls call(readers, first row of the Q·R, number of rows) for groups of at most kMostReaders, in descending order.
  template <typename Call>
  void InGroups(const ParameterStore& parameters, int64_t rows, bool gradients, const Call& call) const;

  std::vector<int32_t> queries_;  // [Q] index of parameter w, g is the next one; −1: no query
  int64_t sources_, d_model_;
  bool adds_;
  float epsilon_;
};

// The chunk part after the stack: x is the history; y [R, d] has the type that products read. Backward adds to d_x.
class BlockReadingEnd final : public ChunkPart {
 public:
  // For the stack whose last sublayer is `last`. `rows`: the most rows R of a micro-batch.
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
