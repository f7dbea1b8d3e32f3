// The front end of speech: y = dropout(sqrt(d)·glu(conv_1(glu(conv_0(frames)))) + PE[position]), the subsampler and the
// positions of fairseq's S2T Transformer (arXiv 2010.05171). A part (chunk_part.h) that writes y and reads d_y. With
// another Block (layers/model_options.h), the factor sqrt(d) is 1 or positions are not added.
//
//   conv_0   W features → C channels, then GLU → C/2        both: kernel 5, stride 2, two zeros at each end
//   conv_1   C/2 → 2d channels, then GLU → d               of an utterance
// Utterances are packed; no convolution reads across their borders. n frames become SubsampledRows(n) rows of y.
// Shapes: frames [F, W], conv_0's result [R_0, C/2], R_0 ≤ 2R, y [R, d]; weights [out, in·5], Conv1d's [out, in, 5].
// Storage: frames and gradients are fp32, y is stored as the residual stream, all else as products read and write.
// Numerics: kernels/unfold.h, activation.h, linear.h. Forward and backward process kRows rows at a time (on a device
// kDeviceRows); this number is part of the order of accumulation. Saved: the inputs [R_0, C] and [R, 2d] of the GLUs;
// backward overwrites them with their gradients. All of backward is in BackwardInput, since the gradient of the
// frames is not needed.
// On a device R_0 = 2R for utterances of any lengths, so that launches depend on R alone; rows after the utterances'
// rows are padding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers/chunk_part.h"
#include "layers/parameter_store.h"

namespace hadal {

// Returns the multiply-adds of both convolutions in the forward for each row of y; 0 for a model that reads text.
double FrontEndProducts(const ModelOptions& options);

class SpeechFrontEnd final : public ChunkPart {
 public:
  // Reserves the table of positions and scratch for `rows` rows of y in `layout`.
  SpeechFrontEnd(const ModelPlan& plan, int64_t rows, DeviceKind kind, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena) override;

  int64_t saved_bytes() const override;
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;
  void BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t step) const override;

  static constexpr int64_t kRows = 256, kDeviceRows = 2048;

 private:
  // One of the two convolutions with its GLU, of one micro-batch.
  struct Convolution {
    int32_t weight = 0;  // parameter; its bias follows
    ConstAnyMatrix x;
    ConstTokens x_offsets, y_offsets;
    DeviceTaps device_taps;  // on a device
    AnyMatrix z;             // the GLU's input; in inference of one block of rows only
    int64_t rows = 0;
  };
  struct Both {
    Convolution first, second;
  };
  // Returns both convolutions, and writes inner_offsets_. REQUIRES: the batch has frames.
  Both Convolutions(const SublayerContext& context, const PartTensors& tensors) const;
  void ConvolveForward(const SublayerContext& context, const Convolution& convolution, AnyMatrix y) const;
  // Adds to the gradients of the weight and bias and, unless it is empty, to dx. Overwrites convolution.z.
  void ConvolveBackward(const SublayerContext& context, const Convolution& convolution, ConstMatrix dy,
                        Matrix dx) const;

  // Returns the input of conv_1.
  AnyMatrix Inner(int64_t rows) const { return {inner_, rows, channels_ / 2, storage_}; }

  int32_t sublayer_, first_parameter_;
  Storage storage_;
  int64_t rows_, block_rows_, width_, frame_width_, channels_;
  float multiplier_;
  double dropout_;
  bool training_;
  ArenaSlice positions_slice_;
  Matrix positions_;
  ArenaBuffer<int32_t> row_numbers_, inner_offsets_;
  ArenaBuffer<std::byte> inner_, unfolded_, z_, unfolded_gradient_;
  ArenaBuffer<float> inner_gradient_, gradient_;
};

}  // namespace hadal
