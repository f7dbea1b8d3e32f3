// Measurements of one recorded step: each series has one value per sublayer; model_update is a single number.
//
//   in the step's micro-batches (Frobenius norms over all rows; gradients of the mean loss per target token):
//     parameter_gradient     ‖∂L/∂W‖ of the sublayer's parameters
//     update_ratio           ‖ΔW‖ / ‖W‖: the change by this update, divided by the parameters after it
//     output_gradient        ‖∂L/∂x‖ of the residual stream after the sublayer
//     norm_output_gradient   ‖∂L/∂n‖ of its LayerNorm's output
//     norm_input_gradient    ‖∂L/∂s‖ of its LayerNorm's input (B2T, arXiv 2206.00330, figure 4)
//   in the probe (a few fixed sentences; dropout off; weights after the update):
//     output                 root mean square of the residual stream after the sublayer
//     norm_input             root mean square of the input of the sublayer's LayerNorm
//     similarity             mean cosine between the rows of the residual stream after the sublayer and before it
//     active                 share of a feed-forward's hidden units that are not zero after ReLU
//     second_stream          root mean square of ResiDual's second residual stream after the sublayer
//     model_update           ‖ΔF‖ = ‖F(x, θ) − F(x, θ_0)‖, root mean square over the rows; F is the decoder's output
//                            [rows, d], θ_0 the run's first weights (DeepNet, arXiv 2203.00555, figure 3)
// NaN: the sublayer has no such tensor (no norm, no ReLU). Empty series: not recorded, or no sublayer has the tensor.
// Infinity: the tensor was not finite.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

namespace hadal {

enum class DepthSeries : int32_t {
  kParameterGradient,
  kUpdateRatio,
  kOutputGradient,
  kNormOutputGradient,
  kNormInputGradient,
  kOutput,
  kNormInput,
  kSimilarity,
  kActive,
  kSecondStream,
};

struct DepthSeriesInfo {
  const char* name;  // in files
  const char* title;
  const char* unit;
  bool logarithmic;  // draw on a logarithmic axis
};
inline constexpr DepthSeriesInfo kDepthSeries[] = {
    {"parameter_gradient", "Gradient of the parameters", "2-norm, nats/token", true},
    {"update_ratio", "Size of the update", "‖ΔW‖/‖W‖ of one update", true},
    {"output_gradient", "Gradient of the activations", "2-norm, nats/token", true},
    {"norm_output_gradient", "Gradient after the LayerNorm", "2-norm, nats/token", true},
    {"norm_input_gradient", "Gradient before the LayerNorm", "2-norm, nats/token", true},
    {"output", "Activations after the sublayer", "root mean square, ‖x‖/√d", true},
    {"norm_input", "Input of the LayerNorm", "root mean square, ‖s‖/√d", true},
    {"similarity", "Similarity to the previous sublayer", "mean cosine of a row", false},
    {"active", "Active hidden units", "share of non-zero numbers after ReLU", false},
    {"second_stream", "Second stream after the sublayer", "root mean square, ‖d‖/√d_model", true},
};
inline constexpr size_t kDepthSeriesCount = std::size(kDepthSeries);

struct DepthMetrics {
  int64_t step = 0;
  int64_t update = 0;                                        // updates applied so far, including this step
  std::optional<double> model_update;                        // ‖ΔF‖
  double seconds = 0;                                        // of probe and gathering; not part of the step's time
  std::array<std::vector<float>, kDepthSeriesCount> series;  // each [encoder_sublayers + decoder_sublayers], or empty

  std::vector<float>& operator[](DepthSeries s) { return series[static_cast<size_t>(s)]; }
  const std::vector<float>& operator[](DepthSeries s) const { return series[static_cast<size_t>(s)]; }
};

}  // namespace hadal
