// What the instruments saw of the depth at one recorded step: for each series a value a sublayer.
//
//   of the step's own micro-batches (Frobenius norms over all their rows, gradients of the mean loss a target token):
//     parameter_gradient     ‖∂L/∂W‖ of the sublayer's parameters
//     update_ratio           ‖ΔW‖ / ‖W‖ of one update, W behind it
//     output_gradient        ‖∂L/∂x‖ of the stream behind the sublayer
//     norm_output_gradient   ‖∂L/∂n‖ behind its LayerNorm …
//     norm_input_gradient    ‖∂L/∂s‖ … and in front of it (B2T, arXiv 2206.00330, figure 4)
//   of the probe (a few sentences that never change; dropout off; the weights behind the update):
//     output                 root mean square of the stream behind the sublayer
//     norm_input             of what its LayerNorm reads: the mean norm of a row over sqrt(d)
//     similarity             mean cosine between the rows of the stream behind the sublayer and of that in front of it
//     active                 share of a feed-forward's hidden numbers that ReLU lets through
//     model_update           ‖ΔF‖ = ‖F(x, θ) − F(x, θ_0)‖, root mean square over the rows; F the decoder's output [rows, d],
//                            θ_0 the weights the run began with (DeepNet, arXiv 2203.00555, figure 3)
// A sublayer that has no such tensor (a norm where there is none, ReLU in attention) has NaN; a series that was not recorded is empty.
// An infinite value stands for a tensor that was not finite.
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
};

struct DepthSeriesInfo {
  const char* name;  // in files
  const char* title;
  const char* unit;
  bool logarithmic;  // how it wants to be drawn
};
inline constexpr DepthSeriesInfo kDepthSeries[] = {
    {"parameter_gradient", "Gradient of the parameters", "2-norm, nats/token", true},
    {"update_ratio", "Size of the update", "‖ΔW‖/‖W‖ of one update", true},
    {"output_gradient", "Gradient of the activations", "2-norm, nats/token", true},
    {"norm_output_gradient", "Gradient behind the LayerNorm", "2-norm, nats/token", true},
    {"norm_input_gradient", "Gradient before the LayerNorm", "2-norm, nats/token", true},
    {"output", "Activations behind the sublayer", "root mean square, ‖x‖/√d", true},
    {"norm_input", "Input of the LayerNorm", "root mean square, ‖s‖/√d", true},
    {"similarity", "Similarity to the sublayer in front", "mean cosine of a row", false},
    {"active", "Active hidden units", "share of non-zero numbers after ReLU", false},
};
inline constexpr size_t kDepthSeriesCount = std::size(kDepthSeries);

struct DepthMetrics {
  int64_t step = 0;
  int64_t update = 0;                                        // updates applied so far, this step included
  std::optional<double> model_update;                        // ‖ΔF‖
  double seconds = 0;                                        // what the probe and the gathering took, beside the step
  std::array<std::vector<float>, kDepthSeriesCount> series;  // each [encoder_sublayers + decoder_sublayers], or empty

  std::vector<float>& operator[](DepthSeries s) { return series[static_cast<size_t>(s)]; }
  const std::vector<float>& operator[](DepthSeries s) const { return series[static_cast<size_t>(s)]; }
};

}  // namespace hadal
