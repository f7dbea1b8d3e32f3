// Two interfaces and the arguments of their operations. A chunk is the range of sublayers that a rank runs as a unit
// (pipeline/stage/chunk.h). A ChunkPart is a part of it: an embedding, a segment (consecutive residual sublayers of one
// stack), a layer combination or the output head. A Branch is the function F of one residual sublayer, inside a
// segment. SublayerContext says where to run, which micro-batch, the step's scalars and scratch.
//
// A part owns no tensors: the chunk allocates them and passes views of one micro-batch's tensors (PartTensors).
// Backward consists of steps() steps, called from steps() − 1 down to 0; a segment has one for each sublayer. Each step
// has two halves: BackwardInput computes the gradient of the inputs; BackwardWeight adds to the gradients of the
// weights. BackwardWeight reads only x, encoder_output, saved, and `pending`, which BackwardInput of the same step
// writes; it may run at any later time while these four are kept. The gradients of norms, of a branch's last
// bias and of gains are an exception: BackwardInput adds them, because its kernels read the data anyway.
// Numerics: parameter gradients are summed in fp32 in call order, which is ascending in the micro-batch in every
// schedule.
// Thread safety: const; one micro-batch at a time per workspace. On a device, calls only launch kernels. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "kernels/device_batch.h"
#include "kernels/gradient_batch.h"
#include "layers/depth_observer.h"
#include "layers/model_plan.h"
#include "layers/parameter_store.h"
#include "layers/position_tables.h"
#include "runtime/arena.h"
#include "runtime/data/packed_batch.h"
#include "runtime/random.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// The most rows of a micro-batch. Fixed by the config; all buffers are sized for it.
struct ActivationCapacity {
  int64_t source_rows = 0;  // of one micro-batch, </s> counted
  int64_t target_rows = 0;
  int64_t max_length = 0;  // longest sentence on either side, </s> counted

  int64_t rows(Stack stack) const { return stack == Stack::kEncoder ? source_rows : target_rows; }
};

// The scalars that change from step to step.
struct StepScalars {
  uint64_t seed = 0;
  int64_t step = 0;            // for data and randomness
  int64_t update = 1;          // from 1; for learning rate and Adam
  bool training = true;        // dropout on, gradients computed
  float gradient_scale = 0;    // 1 / (target tokens of the step)
  int64_t updates_before = 0;  // of the weights, in the runs that this one was initialised from

  int64_t growth_update() const { return updates_before + update; }  // for branch growth
};

// Scratch whose contents no micro-batch needs after a call; one set per rank, sized for its largest chunk. In the type
// of products (ModelPlan::compute_storage) unless stated otherwise.
class Workspace {
 public:
  // Reserves the scratch; for training also what backward needs. `forks`: on a device, gradients of weights have a
  // queue of their own, from Fork on (gradient_batch.h).
  Workspace(const ModelPlan& plan, const ActivationCapacity& capacity, const Stream& stream, Purpose purpose,
            ArenaLayout& layout, bool forks = false);
  void Bind(const Arena& arena);
  // Makes that queue, if there shall be one. Errors: the device's.  REQUIRES: bound.
  absl::Status Fork(const Arena& arena) const;

  AnyMatrix branch(int64_t rows) const { return {branch_, rows, width_, storage_}; }  // F(x)
  AnyMatrix branch_input_gradient(int64_t rows) const { return {branch_input_, rows, width_, storage_}; }
  // The gradient of what the heads give, [rows, H·D].
  AnyMatrix attended_gradient(int64_t rows) const { return {attended_, rows, query_width_, storage_}; }
  const RotaryTables& rotary() const { return rotary_; }
  // What attention reads where queries and keys are normed: [rows, H·D], [rows, K·D].
  AnyMatrix normed_queries(int64_t rows) const { return {normed_queries_, rows, query_width_, storage_}; }
  AnyMatrix normed_keys(int64_t rows) const { return {normed_keys_, rows, key_width_, storage_}; }
  // fp32. With a skip from a layer's input to its last sum (B2T): the gradient of that input through the skip. With
  // several residual streams or blocks: the gradient of what a sublayer reads from them, and later of its result.
  Matrix layer_input_gradient(int64_t rows) const { return {layer_input_, rows, width_}; }
  Vector attention_scratch() const { return {attention_, attention_floats_}; }
  Vector norm_partials() const { return {partials_, partial_floats_}; }
  // Collects the gradients of weights that a device computes together; null on a CPU and without a backward.
  GradientBatch* gradient_batch() const { return gradient_batch_.get(); }
  // For rows of logits of the output head: [rows, V], or with an adaptive softmax of its widest band.
  // REQUIRES: rows ≤ logit_rows().
  AnyMatrix logits(int64_t rows) const {
    AnyMatrix logits(logits_, rows, logit_columns_, storage_);
    logits.stride = logit_stride_;
    return logits;
  }
  // One number for each target row, with room for at least kLogitRows: the loss, after it the nll, and for an encoder
  // alone the hits (kernels/cross_entropy.h; else empty).
  Vector row_loss(int64_t rows) const { return {row_loss_, rows}; }
  Vector row_nll(int64_t rows) const { return {row_loss_ + rows, rows}; }
  Vector row_hits(int64_t rows) const { return row_values_ > 2 ? Vector(row_loss_ + 2 * rows, rows) : Vector(); }
  // All of them in host memory. [2 or 3 · rows]
  Vector host_rows(int64_t rows) const { return {host_row_loss_, row_values_ * rows}; }

  // The output head processes this many rows at a time. The number is part of the order of accumulation, so it depends
  // only on the kind of device and the model. On the CPU it is small, so that logits stay in a cache. On a GPU it is
  // large: the table's gradient is read and written once a block, and a product of few rows and d_model columns leaves
  // most of a GPU idle. Beyond kSmallVocabulary it is a multiple of kFewestLogitRows whose logits take at most
  // kLogitBytes, or kFewestLogitRows:
  //   vocabulary    8,000   32,768   64,000   128,112   250,000   256,206
  //   CPU, fp32       256      256      256       128        64        64
  //   GPU, bf16     2,048    2,048      512       256       128       128
  static int64_t LogitRows(DeviceKind kind, const ModelPlan& plan);
  static constexpr int64_t kSmallVocabulary = 32768;
  static constexpr int64_t kFewestLogitRows = 64;
  static constexpr int64_t kLogitBytes = int64_t{64} << 20;
  int64_t logit_rows() const { return logit_rows_; }
  // Elements from one row of logits to the next. On a GPU every row begins on a 16-byte boundary, because products of
  // other rows are slower.
  static constexpr int64_t LogitStride(DeviceKind kind, int64_t vocabulary) {
    return kind == DeviceKind::kCpu ? vocabulary : (vocabulary + 7) / 8 * 8;
  }
  // Most rows of a decoding step, for which every device has room: as LogitRows on the CPU.
  static int64_t DecodeRows(const ModelPlan& plan);
  static constexpr int64_t kLogitRows = 256;  // of a small vocabulary, on the CPU

 private:
  Storage storage_ = Storage::kFloat32;
  int64_t width_ = 0, query_width_ = 0, key_width_ = 0, logit_columns_ = 0, logit_rows_ = 0, logit_stride_ = 0,
          attention_floats_ = 0, partial_floats_ = 0, batch_floats_ = 0, loss_rows_ = 0, row_values_ = 0;
  ArenaBuffer<std::byte> branch_, branch_input_, attended_, logits_, normed_queries_, normed_keys_, fork_workspace_;
  ArenaBuffer<float> layer_input_, attention_, partials_, batch_, fork_, row_loss_, host_row_loss_;
  RotaryTables rotary_;
  std::unique_ptr<GradientBatch> gradient_batch_;
  bool forks_ = false;
};

// One micro-batch on its way through a chunk.
struct SublayerContext {
  const Stream& stream;
  const ParameterStore& parameters;
  const Workspace& workspace;
  const PackedBatch& batch;
  StepScalars scalars;
  const DeviceBatch* device_batch = nullptr;        // batch and scalars in device memory; null: each launch copies them
  const std::function<void()>* progress = nullptr;  // called between sublayers; moves transfers along
  GradientBatch* gradients = nullptr;  // collects gradients of weights for a later launch; null: computed at once
  DepthObserver* observer = nullptr;   // observes tensors; may be null

  // On a device the observer gets a copy on the host, without padding rows, and a stream of the CPU.
  void Observe(const DepthObservation& observation) const;
  void Progress() const {
    if (progress != nullptr) (*progress)();
  }
  // The device address of a sublayer's branch gain b. Null: b is only on the host, or it is always 1 and no kernel
  // reads it.
  const float* DeviceBranchGain(int32_t sublayer) const;
  const ModelPlan& plan() const { return parameters.plan(); }
  int64_t rows(Stack stack) const { return stack == Stack::kEncoder ? batch.source_rows() : batch.target_rows(); }
  // Rows without padding rows.
  int64_t sentence_rows(Stack stack) const {
    return stack == Stack::kEncoder ? batch.sentence_source_rows() : batch.sentence_target_rows();
  }
  ConstTokens offsets(Stack stack) const {
    const std::vector<int32_t>& v = stack == Stack::kEncoder ? batch.source_offsets : batch.target_offsets;
    return {v.data(), static_cast<int64_t>(v.size())};
  }
  // The mask at `site` of `sublayer` with probability p; inactive outside training.
  Dropout MakeDropout(double p, int32_t sublayer, RandomSite site) const {
    return {{.seed = scalars.seed,
             .step = static_cast<uint32_t>(scalars.step),
             .micro_batch = static_cast<uint32_t>(batch.micro_batch),
             .sublayer = static_cast<uint32_t>(sublayer),
             .site = site},
            scalars.training ? Dropout::Threshold(p) : 0,
            device_batch == nullptr ? nullptr : device_batch->random};
  }
};

// Bytes of a branch's saved tensors.
struct SavedBytes {
  int64_t kept = 0;   // of tensors that BackwardWeight reads
  int64_t input = 0;  // of tensors that only BackwardInput reads
  int64_t all() const { return kept + input; }
};

// Divides, from the front, a block of memory in which a sublayer saves tensors of a micro-batch for its backward. The
// same code computes the block's size (without memory) and finds the tensors again. Each tensor is 16-byte aligned, for
// the kernels of a device.
class SavedTensors {
 public:
  static constexpr int64_t kAlignmentBytes = 16;

  // REQUIRES: `memory` is 16-byte aligned. Null: only computes the size.
  explicit SavedTensors(std::byte* memory) : memory_(memory) {}

  AnyMatrix Take(Storage storage, int64_t rows, int64_t columns) {
    return {TakeBytes(rows * columns * BytesOf(storage)), rows, columns, storage};
  }
  Matrix TakeFloats(int64_t rows, int64_t columns) { return Take(Storage::kFloat32, rows, columns).floats(); }
  // Takes memory for a component that divides it into tensors itself.
  std::byte* TakeBytes(int64_t bytes) {
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    return at;
  }
  // As TakeBytes; returns the memory's offset.
  int64_t Reserve(int64_t bytes) {
    const int64_t offset = bytes_;
    TakeBytes(bytes);
    return offset;
  }
  // Returns memory for further tensors: `apart`, or if that is null, what follows the tensors taken so far.
  SavedTensors Behind(std::byte* apart) const {
    return SavedTensors(apart != nullptr || memory_ == nullptr ? apart : memory_ + bytes_);
  }
  int64_t bytes() const { return bytes_; }  // taken so far

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

// Views of one micro-batch's tensors. Each part documents which of them it uses; the others may be empty.
// R: rows of the part's stack.
struct PartTensors {
  ConstAnyMatrix x;               // input: [R, d], or the stack's history [entries · R, d]
  ConstAnyMatrix encoder_output;  // [source rows, d]; only for cross-attention
  AnyMatrix y;                    // output [R, d] (=); may not alias x
  // The stack's second stream, fp32 (second_stream.h), which Forward updates in place, and its gradient, which is the
  // same after every sublayer. Empty: there is none, or this is a recomputation, which does not update it.
  Matrix second;    // [R, d]
  Matrix d_second;  // [R, d]; written by SecondStreamEnd, read by segments
  // In a stack that reads blocks (block_reader.h), fp32: the open block's sum before the part, and its gradient (=),
  // which may be the memory of d_y. Empty where a block begins.
  Matrix open;    // [R, d]
  Matrix d_open;  // [R, d]
  // saved_bytes() bytes, written by Forward for backward. The last saved_input_bytes() of them, which BackwardWeight
  // does not read, are in `saved_input` instead if that is not null.
  std::byte *saved = nullptr, *saved_input = nullptr;
  // Backward only.
  AnyMatrix d_y;                 // [R, d]: the gradient of y, stored as the residual stream; overwritten
  AnyMatrix d_x;                 // gradient of x (=), may be the memory of d_y; for a history (+=)
  Matrix d_encoder_output;       // (+=), fp32
  std::byte* pending = nullptr;  // from BackwardInput to BackwardWeight of the same step: pending_bytes(step)
};

class ChunkPart {
 public:
  virtual ~ChunkPart() = default;

  // Stores the addresses of memory that the part reserved in its constructor.
  virtual void Bind(const Arena& /*arena*/) {}
  // Sizes at full capacity of `saved` (`saved_input` included), of `saved_input`, and of `pending` of PartTensors.
  virtual int64_t saved_bytes() const { return 0; }
  virtual int64_t saved_input_bytes() const { return 0; }
  virtual int32_t steps() const { return 1; }
  virtual int64_t pending_bytes(int32_t /*step*/) const { return 0; }
  // Whether each step of backward completes the gradients of a sublayer, or only the last one those of all.
  virtual bool completes_by_step() const { return true; }

  virtual void Forward(const SublayerContext& context, const PartTensors& tensors) const = 0;
  // REQUIRES: steps are called in descending order.
  virtual void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const = 0;
  virtual void BackwardWeight(const SublayerContext& /*context*/, const PartTensors& /*tensors*/,
                              int32_t /*step*/) const {}
};

// Branch: the function F of the residual connection s = r·x + b·dropout(F(x)) + a·e (kernels/residual_norm.h):
// attention or feed-forward, without the sublayer's norm.
//
// Three methods, with the tensors and rules of a part's step: Forward stores in `saved` what backward needs;
// BackwardInput reads the gradient of its output and stores inner gradients in `pending`; BackwardWeight reads
// x, encoder_output, `saved`, `pending` and d_y, which the segment keeps in its own `pending` until then. The bias of
// the last product (out_proj.bias, fc2.bias) is not part of F: the residual connection's kernel adds it and sums its
// gradient, because that kernel reads the product anyway.
// Shapes: x, y and their gradients [R, d]; R = source rows in the encoder, target rows in the decoder.
// Storage: ModelPlan::compute_storage; d_x may also be stored as the residual stream.
class Branch {
 public:
  virtual ~Branch() = default;

  // Bytes of `saved` and of `pending` for one micro-batch at full capacity.
  virtual SavedBytes BytesToSave(const ActivationCapacity& capacity) const = 0;
  virtual int64_t PendingBytes(const ActivationCapacity& capacity) const = 0;
  // y = F(x) without the last bias (=).
  virtual void Forward(const SublayerContext& context, const PartTensors& tensors) const = 0;
  // d_x (=, or += if `accumulate`) F'ᵀ·d_y; cross-attention also adds to d_encoder_output.
  virtual void BackwardInput(const SublayerContext& context, const PartTensors& tensors, bool accumulate) const = 0;
  // Adds to the gradients of the branch's weights and inner biases.
  virtual void BackwardWeight(const SublayerContext& context, const PartTensors& tensors) const = 0;
  // Returns the parameter of the last bias; -1 if the branch itself adds it, before its output norm.
  virtual int32_t output_bias() const = 0;
};

// Creates the branch of plan.sublayers[sublayer]. REQUIRES: an attention or feed-forward sublayer.
std::unique_ptr<Branch> MakeBranch(const ModelPlan& plan, int32_t sublayer);
// Parts of MakeBranch; MakeNormedBranch wraps a branch in the norms that some methods have
// before or after it (branch_parts.cc).
std::unique_ptr<Branch> MakeAttention(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeFeedForward(const ModelPlan& plan, int32_t sublayer);
std::unique_ptr<Branch> MakeNormedBranch(const ModelPlan& plan, int32_t sublayer, std::unique_ptr<Branch> inner);

// Creates the segment of sublayers [first, last). REQUIRES: first < last; all are of one stack and one norm placement.
std::unique_ptr<ChunkPart> MakeSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                       const ActivationCapacity& capacity);
// A part of MakeSegment: for a stack with several residual streams.
std::unique_ptr<ChunkPart> MakeHyperSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                            const ActivationCapacity& capacity);
// Likewise for a stack that reads blocks.
std::unique_ptr<ChunkPart> MakeBlockReadingSegment(const ModelPlan& plan, int32_t first, int32_t last,
                                                   const ActivationCapacity& capacity);

}  // namespace hadal
