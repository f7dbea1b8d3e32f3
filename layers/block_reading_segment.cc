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
// Storage: as block_reader.h; the branch as products.
// Pending: the gradient of the branch's output [R, d], then the branch's own.
// Numerics: the division of a model into segments does not change any bit.
// Thread safety: const after construction; one micro-batch at a time per workspace.
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/convert.h"
#include "kernels/residual_norm.h"
#include "layers/block_reader.h"
#include "layers/branch_parts.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "runtime/check.h"
#include "runtime/profiler.h"

namespace hadal {
namespace {

class BlockReadingSegment final : public ChunkPart {
 public:
  // Sublayers [first, last) of the plan.  REQUIRES: first < last; residual sublayers of a block.
  BlockReadingSegment(const ModelPlan& plan, int32_t first, int32_t last, const ActivationCapacity& capacity);

  int64_t saved_bytes() const override { return kept_.bytes() + input_.bytes(); }
  int64_t saved_input_bytes() const override { return input_.bytes(); }
  int32_t steps() const override { return static_cast<int32_t>(sublayers_.size()); }
  int64_t pending_bytes(int32_t step) const override {
    return pending_.bytes() + sublayers_[step].branch->PendingBytes(capacity_);
  }
  bool completes_by_step() const override { return false; }
  // Calls the context's progress callback after each sublayer.
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;
  void BackwardWeight(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

 private:
  // Byte offsets: of `normed` and branch_saved.kept in `saved`, of all others in saved_input.
  struct Sublayer {
    std::unique_ptr<Branch> branch;
    PlainNorm norm;
    int64_t open = -1;  // the sum in front; −1: PartTensors::open
    int64_t normed = 0, mean = 0, rstd = 0;
    SavedBytes branch_saved;
  };
  // saved_input is not null.
  struct Tensors : PartTensors {
    int64_t rows = 0;  // R
    BlockReader::Saved read;
  };
  Tensors With(const SublayerContext& context, const PartTensors& tensors) const;
  AnyMatrix ProductAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {saved + offset, rows, d_model_, storage_};
  }
  Vector VectorAt(std::byte* saved, int64_t offset, int64_t rows) const {
    return {reinterpret_cast<float*>(saved + offset), rows};
  }
  // The open sum in front of sublayer `index`; empty at the block's start.
  Matrix OpenAt(size_t index, const Tensors& t) const;
  // The sum behind it.
  Matrix SumBehind(size_t index, const Tensors& t) const {
    return index + 1 < sublayers_.size() ? OpenAt(index + 1, t) : t.y.floats();
  }
  // The gradient of the sum, in the memory that a step leaves to the one before it.
  Matrix SumGradient(const Tensors& t) const { return t.d_open.empty() ? t.d_y.floats() : t.d_open; }
  AnyMatrix BranchGradient(const Tensors& t) const { return ProductAt(t.pending, 0, t.rows); }
  PartTensors BranchTensors(const SublayerContext& context, size_t index, const Tensors& t) const;
  void ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const;
  void ForwardNorm(const SublayerContext& context, size_t index, const Tensors& t) const;
  // From the gradient of the sum behind sublayer `index` to that of its branch; leaves the sum's as it is.
  void BackwardSum(const SublayerContext& context, size_t index, const Tensors& t) const;
  // From the gradient of the branch's input, in the workspace, to that of h.
  void BackwardNorm(const SublayerContext& context, size_t index, const Tensors& t, Matrix d_read) const;

  int32_t first_;
  ActivationCapacity capacity_;
  Stack stack_;
  Storage storage_;
  int64_t d_model_;
  double dropout_;
  BlockReader reader_;
  std::vector<Sublayer> sublayers_;
  SavedTensors<std::byte> kept_{nullptr}, input_{nullptr}, pending_{nullptr};  // compute sizes only
};

BlockReadingSegment::BlockReadingSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                         const ActivationCapacity& capacity)
    : first_(first),
      capacity_(capacity),
      stack_(plan.sublayers[first].stack),
      storage_(plan.compute_storage),
      d_model_(plan.options.d_model),
      dropout_(plan.options.dropout),
      reader_(plan, first, last) {
  const int64_t rows = capacity.rows(stack_);
  const auto reserve = [](SavedTensors<std::byte>& tensors, int64_t bytes) {
    const int64_t offset = tensors.bytes();
    tensors.TakeBytes(bytes);
    return offset;
  };
  const auto reserve_floats = [&](int64_t columns) { return reserve(input_, rows * columns * int64_t{sizeof(float)}); };
  reserve(input_, reader_.At(nullptr, rows).bytes);
  for (int32_t s = first; s < last; ++s) {
    Sublayer& sublayer = sublayers_.emplace_back();
    sublayer.branch = MakeBranch(plan, s);
    sublayer.norm = PlainNorm(plan.ParameterOf(s, ParameterRole::kNormScale), plan.sublayers[s].norm_gain);
    if (s > first) sublayer.open = reserve_floats(d_model_);
    sublayer.normed = reserve(kept_, rows * d_model_ * BytesOf(storage_));
    for (int64_t* at : {&sublayer.mean, &sublayer.rstd}) *at = reserve_floats(1);
    const SavedBytes bytes = sublayer.branch->BytesToSave(capacity);
    sublayer.branch_saved = {.kept = reserve(kept_, bytes.kept), .input = reserve(input_, bytes.input)};
  }
  reserve(pending_, rows * d_model_ * BytesOf(storage_));
}

BlockReadingSegment::Tensors BlockReadingSegment::With(const SublayerContext& context,
                                                       const PartTensors& tensors) const {
  Tensors t{tensors, context.rows(stack_), {}};
  if (t.saved_input == nullptr) t.saved_input = t.saved + kept_.bytes();
  t.read = reader_.At(t.saved_input, t.rows);
  return t;
}

Matrix BlockReadingSegment::OpenAt(size_t index, const Tensors& t) const {
  if (sublayers_[index].open < 0) return t.open;
  return {reinterpret_cast<float*>(t.saved_input + sublayers_[index].open), t.rows, d_model_};
}

void BlockReadingSegment::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  const Tensors t = With(context, tensors);
  reader_.ReadSources(context.stream, context.parameters, t.x.floats(), t.read);
  for (size_t i = 0; i < sublayers_.size(); ++i) {
    const ProfilerRange range(context.stream, "sublayer", first_ + static_cast<int32_t>(i));
    ForwardSublayer(context, i, t);
    context.Progress();
  }
}

void BlockReadingSegment::ForwardSublayer(const SublayerContext& context, size_t index, const Tensors& t) const {
  const Sublayer& s = sublayers_[index];
  const int32_t sublayer = first_ + static_cast<int32_t>(index);
  const Matrix open = OpenAt(index, t), read = t.read.ReadOf(static_cast<int64_t>(index), t.rows);
  reader_.ReadOpen(context.stream, context.parameters, static_cast<int64_t>(index), open, t.read);
  ForwardNorm(context, index, t);
  PartTensors of_branch = BranchTensors(context, index, t);
  of_branch.y = context.workspace.branch(t.rows);
  s.branch->Forward(context, of_branch);
  context.Observe({.tensor = DepthTensor::kBranch, .sublayer = sublayer, .values = of_branch.y});
  ResidualNormForwardArgs args{.residual = open.empty() ? read : open, .branch = of_branch.y};
  args.bias = context.parameters.WeightVector(s.branch->output_bias());
  args.residual_gain = open.empty() ? 0 : 1;
  args.branch_gain = BranchGain(context.plan().sublayers[sublayer], context.scalars.growth_update());
  args.device_branch_gain = context.DeviceBranchGain(sublayer);
  args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
  args.sum = SumBehind(index, t);
  ResidualNormForward(context.stream, args);
  context.Observe({.tensor = DepthTensor::kOutput, .sublayer = sublayer, .values = args.sum, .before = args.residual});
}

void BlockReadingSegment::ForwardNorm(const SublayerContext& context, size_t index, const Tensors& t) const {
  const Sublayer& s = sublayers_[index];
  const int32_t sublayer = first_ + static_cast<int32_t>(index);
  const Matrix read = t.read.ReadOf(static_cast<int64_t>(index), t.rows);
  const AnyMatrix normed = ProductAt(t.saved, s.normed, t.rows);
  if (!s.norm.present()) return Convert(context.stream, {.from = read, .to = normed});
  context.Observe({.tensor = DepthTensor::kNormInput, .sublayer = sublayer, .values = read});
  s.norm.Forward(context.stream, context.parameters, read, normed, VectorAt(t.saved_input, s.mean, t.rows),
                 VectorAt(t.saved_input, s.rstd, t.rows));
}

PartTensors BlockReadingSegment::BranchTensors(const SublayerContext& context, size_t index, const Tensors& t) const {
  const Sublayer& s = sublayers_[index];
  PartTensors tensors{.x = ProductAt(t.saved, s.normed, t.rows), .encoder_output = t.encoder_output};
  tensors.saved = t.saved + s.branch_saved.kept;
  tensors.saved_input = t.saved_input + s.branch_saved.input;
  if (t.pending == nullptr) return tensors;
  tensors.d_y = BranchGradient(t);
  tensors.d_x = context.workspace.branch_input_gradient(t.rows);
  tensors.d_encoder_output = t.d_encoder_output;
  tensors.pending = t.pending + pending_.bytes();
  return tensors;
}

void BlockReadingSegment::BackwardInput(const SublayerContext& context, const PartTensors& tensors,
                                        int32_t step) const {
  const Tensors t = With(context, tensors);
  const int32_t sublayer = first_ + step;
  const ProfilerRange range(context.stream, "sublayer", sublayer);
  const Matrix d_sum = SumGradient(t);
  if (step + 1 == steps() && d_sum.data != t.d_y.data) context.stream.Copy(d_sum.data, t.d_y.data, t.d_y.bytes());
  BackwardSum(context, step, t);
  sublayers_[step].branch->BackwardInput(context, BranchTensors(context, step, t), /*accumulate=*/false);
  const Matrix d_read = context.workspace.layer_input_gradient(t.rows);
  BackwardNorm(context, step, t, d_read);
  reader_.ReadOpenBackward(context, step, OpenAt(step, t), d_read, d_sum, t.read);
  if (step == 0) reader_.ReadSourcesBackward(context, t.x.floats(), t.d_x.floats(), t.read);
}

void BlockReadingSegment::BackwardSum(const SublayerContext& context, size_t index, const Tensors& t) const {
  const int32_t sublayer = first_ + static_cast<int32_t>(index);
  const Matrix d_sum = SumGradient(t);
  context.Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = sublayer, .values = d_sum});
  ResidualNormBackwardArgs args{.d_sum = d_sum, .d_residual = d_sum};
  args.branch_gain = BranchGain(context.plan().sublayers[sublayer], context.scalars.growth_update());
  args.device_branch_gain = context.DeviceBranchGain(sublayer);
  args.dropout = context.MakeDropout(dropout_, sublayer, RandomSite::kResidual);
  args.d_branch = BranchGradient(t);
  const int32_t bias = sublayers_[index].branch->output_bias();
  args.bias = context.parameters.WeightVector(bias);
  args.d_bias = context.parameters.GradientVector(bias);
  args.partials = context.workspace.norm_partials();
  args.batch = context.gradients;
  ResidualNormBackward(context.stream, args);
  context.Observe({.tensor = DepthTensor::kBranchGradient, .sublayer = sublayer, .values = BranchGradient(t)});
}

void BlockReadingSegment::BackwardNorm(const SublayerContext& context, size_t index, const Tensors& t,
                                       Matrix d_read) const {
  const Sublayer& s = sublayers_[index];
  const int32_t sublayer = first_ + static_cast<int32_t>(index);
  const AnyMatrix d_normed = context.workspace.branch_input_gradient(t.rows);
  if (!s.norm.present()) return Convert(context.stream, {.from = d_normed, .to = d_read});
  context.Observe({.tensor = DepthTensor::kNormOutputGradient, .sublayer = sublayer, .values = d_normed});
  s.norm.Backward(context, t.read.ReadOf(static_cast<int64_t>(index), t.rows), VectorAt(t.saved_input, s.mean, t.rows),
                  VectorAt(t.saved_input, s.rstd, t.rows), d_normed, d_read);
  context.Observe({.tensor = DepthTensor::kNormInputGradient, .sublayer = sublayer, .values = d_read});
}

void BlockReadingSegment::BackwardWeight(const SublayerContext& context, const PartTensors& tensors,
                                         int32_t step) const {
  const ProfilerRange range(context.stream, "sublayer", first_ + step);
  sublayers_[step].branch->BackwardWeight(context, BranchTensors(context, step, With(context, tensors)));
  context.Progress();
}

}  // namespace

std::unique_ptr<ChunkPart> MakeBlockReadingSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                                   const ActivationCapacity& capacity) {
  return std::make_unique<BlockReadingSegment>(plan, first, last, capacity);
}

}  // namespace hadal
