// BlockReadingSegment: consecutive residual sublayers of one block of a stack that reads blocks (block_reader.h). What
// Segment (segment.cc) is for a residual stream: a part with one backward step per sublayer, the unit of recomputation.
//
// Tensors: x is the stack's history [K·R, d], `open` the block's sum before the segment, empty at the block's start; y
// [R, d] the block's sum after it, at the block's end an entry of the history. A decoder reads encoder_output.
// Backward: the sublayers' gradients of h are kept until the last step, which reads the history once for all of them
// and adds to d_x; only then the gradients of the readers' parameters are complete. d_open's memory has the gradient of
// the open sum in every step; it may be d_y's.
// Memory traffic of a sublayer beside its branch, in rows of d, K sources and a segment of Q sublayers: forward K/Q + 1
// for the sources, 3 for the open sum, 2 for the norm, 3 for f; backward 3K/Q + 1, 6, 3 and 3. Each live micro-batch
// keeps 3 rows a sublayer beside the branch's tensors (h, LN(h), the open sum), with recomputation 1 a segment.
// Storage: as block_reader.h; the branch as products. Pending, numerics, threads: segment_frame.h.
#include <cstdint>
#include <memory>
#include <vector>

#include "layers/block_reader.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "layers/segment_frame.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

class BlockReadingSegment final : public ReadingSegment {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: first < last; residual sublayers of a block.
  BlockReadingSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  bool completes_by_step() const override { return false; }
  // Calls the context's progress callback after each sublayer.
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  BlockReader::Saved Read(const Tensors& t) const { return reader_.At(t.saved_input + read_, t.rows); }
  // The open sum in front of sublayer `index`, empty at the block's start; behind the last one y.
  Matrix OpenAt(size_t index, const Tensors& t) const;
  void ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const;

  BlockReader reader_;
  int64_t read_;               // offset in saved_input, as all
  std::vector<int64_t> open_;  // of the open sums in front of the sublayers but the first
};

BlockReadingSegment::BlockReadingSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                         const ActivationCapacity& capacity)
    : ReadingSegment(plan, first, last, capacity),
      reader_(plan, first, last),
      read_(input_.Reserve(reader_.At(nullptr, capacity.rows(stack_)).bytes)) {
  for (int32_t s = first + 1; s < last; ++s) open_.push_back(Reserve(input_, d_model_));
}

Matrix BlockReadingSegment::OpenAt(size_t index, const Tensors& t) const {
  if (index == 0) return t.open;
  return index > open_.size() ? t.y.floats() : FloatsAt(t.saved_input, open_[index - 1], t.rows, d_model_);
}

void BlockReadingSegment::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const Tensors t = With(context, tensors);
  reader_.ReadSources(context.stream, context.parameters, t.x.floats(), Read(t));
  for (size_t i = 0; i < branches_.size(); ++i) {
    const ProfilerRange range(context.stream, "sublayer", SublayerAt(i));
    ForwardSublayer(context, i, t);
    context.Progress();
  }
}

void BlockReadingSegment::ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const {
  const BlockReader::Saved saved = Read(t);
  const auto reader = static_cast<int64_t>(index);
  const Matrix open = OpenAt(index, t), h = saved.ReadOf(reader, t.rows), sum = OpenAt(index + 1, t);
  reader_.ReadOpen(context.stream, context.parameters, reader, open, saved);
  ForwardBranch(context, index, t, h, open, sum);
  context.Observe({.tensor = DepthTensor::kOutput,
                   .sublayer = SublayerAt(index),
                   .values = sum,
                   .before = open.empty() ? h : open});
}

void BlockReadingSegment::BackwardInput(const SublayerContext& context, const PartTensors& tensors,
                                        int32_t step) const {
  const Tensors t = With(context, tensors);
  const BlockReader::Saved saved = Read(t);
  const ProfilerRange range(context.stream, "sublayer", first_ + step);
  // In the memory that a step leaves to the one before it.
  const Matrix d_sum = t.d_open.empty() ? t.d_y.floats() : t.d_open;
  if (step + 1 == steps() && d_sum.data != t.d_y.data) context.stream.Copy(d_sum.data, t.d_y.data, t.d_y.bytes());
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = first_ + step, .values = d_sum});
  const Matrix dh = context.workspace.layer_input_gradient(t.rows);
  BackwardBranch(context, step, t, saved.ReadOf(step, t.rows), /*residual_gain=*/1, d_sum, dh);
  reader_.ReadOpenBackward(context, step, OpenAt(step, t), dh, d_sum, saved);
  if (step == 0) reader_.ReadSourcesBackward(context, t.x.floats(), t.d_x.floats(), saved);
}

}  // namespace

std::unique_ptr<ChunkPart> MakeBlockReadingSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                                   const ActivationCapacity& capacity) {
  return std::make_unique<BlockReadingSegment>(plan, first, last, capacity);
}

}  // namespace hadal
