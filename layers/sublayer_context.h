// What the verbs of a sublayer get besides their own tensors: where to run, which micro-batch, the step's scalars,
// scratch.
// Thread safety: views and plain values; a workspace serves one micro-batch at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/device_batch.h"
#include "kernels/gradient_batch.h"
#include "layers/depth_observer.h"
#include "layers/parameter_store.h"
#include "layers/purpose.h"
#include "runtime/arena.h"
#include "runtime/data/packed_batch.h"
#include "runtime/random.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Fixed by the config; all buffers are sized for it.
struct ActivationCapacity {
  int64_t source_rows = 0;  // of one micro-batch, </s> counted
  int64_t target_rows = 0;
  int64_t max_length = 0;  // longest sentence on either side, </s> counted

  int64_t rows(Stack stack) const { return stack == Stack::kEncoder ? source_rows : target_rows; }
};

// The scalars that change from step to step.
struct StepScalars {
  uint64_t seed = 0;
  int64_t step = 0;          // for data and randomness
  int64_t update = 1;        // 1-based; for learning rate, Adam, branch growth
  bool training = true;      // dropout on, gradients wanted
  float gradient_scale = 0;  // 1 / (target tokens of the step)
};

// Scratch that no micro-batch keeps; one set a rank, sized for its widest chunk. Stored as products read and write,
// unless said otherwise.
class Workspace {
 public:
  // Reserves the scratch; for training also what backward needs.
  Workspace(const ModelPlan& plan, const ActivationCapacity& capacity, const Stream& stream, Purpose purpose,
            ArenaLayout& layout);
  void Bind(const Arena& arena);

  AnyMatrix branch(int64_t rows) const { return {branch_, rows, width_, storage_}; }  // F(x)
  AnyMatrix branch_input_gradient(int64_t rows) const { return {branch_input_, rows, width_, storage_}; }
  AnyMatrix attended_gradient(int64_t rows) const { return {attended_, rows, width_, storage_}; }
  // The gradient of a layer's input through the skip to the layer's last sum; with several streams, of what a sublayer
  // reads of them and of its result: fp32.
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
  // One number for each target row, with room for at least kLogitRows: the loss, and after it the nll.
  Vector row_loss(int64_t rows) const { return {row_loss_, rows}; }
  Vector row_nll(int64_t rows) const { return {row_loss_ + rows, rows}; }
  // Loss and nll in host memory. [2 · rows]
  Vector host_rows(int64_t rows) const { return {host_row_loss_, 2 * rows}; }

  // The output head works on this many rows at a time. The number is part of the order of accumulation, so it depends
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
  // From one row of logits to the next, in elements. On a GPU rows begin on 16 bytes whatever the vocabulary is,
  // because products of others are slower.
  static constexpr int64_t LogitStride(DeviceKind kind, int64_t vocabulary) {
    return kind == DeviceKind::kCpu ? vocabulary : (vocabulary + 7) / 8 * 8;
  }
  // Most rows of a decoding step, for which every device has room: as LogitRows on the CPU.
  static int64_t DecodeRows(const ModelPlan& plan);
  static constexpr int64_t kLogitRows = 256;  // of a small vocabulary, on the CPU

 private:
  Storage storage_ = Storage::kFloat32;
  int64_t width_ = 0, logit_columns_ = 0, logit_rows_ = 0, logit_stride_ = 0, attention_floats_ = 0,
          partial_floats_ = 0, batch_floats_ = 0, loss_rows_ = 0;
  ArenaSlice branch_slice_, branch_input_slice_, attended_slice_, attention_slice_, layer_input_slice_, partial_slice_,
      batch_slice_, logits_slice_, row_slice_, host_row_slice_;
  void *branch_ = nullptr, *branch_input_ = nullptr, *attended_ = nullptr, *logits_ = nullptr;
  float *layer_input_ = nullptr, *attention_ = nullptr, *partials_ = nullptr, *row_loss_ = nullptr,
        *host_row_loss_ = nullptr;
  std::unique_ptr<GradientBatch> gradient_batch_;
};

// One micro-batch on its way through a chunk.
struct SublayerContext {
  const Stream& stream;
  const ParameterStore& parameters;
  const Workspace& workspace;
  const PackedBatch& batch;
  StepScalars scalars;
  const DeviceBatch* device_batch = nullptr;        // the batch and the scalars on a device; null: launches bring them
  const std::function<void()>* progress = nullptr;  // called between sublayers; moves transfers along
  GradientBatch* gradients = nullptr;  // where a device may leave gradients of weights for later; null: nowhere
  DepthObserver* observer = nullptr;   // observes tensors; may be null

  // On a device the observer gets a copy on the host, without padding rows, and a stream of the CPU.
  void Observe(const DepthObservation& observation) const;
  void Progress() const {
    if (progress != nullptr) (*progress)();
  }
  // Where a device finds b of a sublayer's residual connection. Null: on the host alone, or b is always 1, and then no
  // kernel reads it.
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

}  // namespace hadal
