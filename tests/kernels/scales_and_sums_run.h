// Cases of the operations with a few learned numbers (a gain or norm of each head, shift and scale, weights of a sum),
// their run in a backend's Lab, and the comparison with their references. X, Y: the stored types of an operation's two
// sides. A Lab has Matrix<T>(values, columns), stored as T, Vector(values), and Run(args), the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/head_norm.h"
#include "kernels/shift_scale.h"
#include "kernels/weighted_sum.h"
#include "tests/support/kernel_device.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {

// The references: plain loops in double precision; dense matrices.
struct HeadScaleReference {
  int64_t rows, width;
  std::vector<double> x, gain;

  int64_t Head(int64_t i) const { return i % width / (width / std::ssize(gain)); }
  std::vector<double> Forward() const {
    std::vector<double> y(x);
    for (int64_t i = 0; i < rows * width; ++i) y[i] *= gain[Head(i)];
    return y;
  }
  struct Gradients {
    std::vector<double> dx, d_gain;
  };
  Gradients Backward(const std::vector<double>& dy) const {
    Gradients g{dy, std::vector<double>(gain.size())};
    for (int64_t i = 0; i < rows * width; ++i) {
      g.dx[i] *= gain[Head(i)];
      g.d_gain[Head(i)] += dy[i] * x[i];
    }
    return g;
  }
};

struct HeadNormReference {
  NormForm form;
  std::vector<double> x, scale, shift;  // `shift` may be empty

  size_t width() const { return scale.size(); }
  // Calls body(first element, mean, rstd) for each head of each row.
  template <typename Body>
  void ForHeads(Body&& body) const {
    for (size_t first = 0; first < x.size(); first += width()) {
      double mean = 0, squares = 0;
      for (size_t c = 0; form.centred && c < width(); ++c) mean += x[first + c] / width();
      for (size_t c = 0; c < width(); ++c) squares += (x[first + c] - mean) * (x[first + c] - mean);
      body(first, mean, 1 / std::sqrt(squares / width() + form.epsilon));
    }
  }
  std::vector<double> Forward() const {
    std::vector<double> y(x.size());
    ForHeads([&](size_t first, double mean, double rstd) {
      for (size_t c = 0; c < width(); ++c) {
        y[first + c] = (x[first + c] - mean) * rstd * scale[c] + (shift.empty() ? 0 : shift[c]);
      }
    });
    return y;
  }
  struct Gradients {
    std::vector<double> dx, d_scale, d_shift;
  };
  Gradients Backward(const std::vector<double>& dy) const {
    Gradients g{dy, std::vector<double>(width()), std::vector<double>(width())};
    ForHeads([&](size_t first, double mean, double rstd) {
      double of_gradient = 0, of_product = 0;
      const auto normalised = [&](size_t c) { return (x[first + c] - mean) * rstd; };
      for (size_t c = 0; c < width(); ++c) {
        g.d_scale[c] += dy[first + c] * normalised(c);
        g.d_shift[c] += dy[first + c];
        if (form.centred) of_gradient += dy[first + c] * scale[c] / width();
        of_product += dy[first + c] * scale[c] * normalised(c) / width();
      }
      for (size_t c = 0; c < width(); ++c) {
        g.dx[first + c] = rstd * (dy[first + c] * scale[c] - of_gradient - normalised(c) * of_product);
      }
    });
    return g;
  }
};

struct ShiftScaleReference {
  std::vector<double> x, shift, scale;

  std::vector<double> Forward() const {
    std::vector<double> y(x);
    for (double& value : y) value = scale[0] * (value - shift[0]);
    return y;
  }
  struct Gradients {
    std::vector<double> dx, d_shift, d_scale;
  };
  Gradients Backward(const std::vector<double>& dy) const {
    Gradients g{dy, {0}, {0}};
    for (size_t i = 0; i < dy.size(); ++i) {
      g.dx[i] *= scale[0];
      g.d_shift[0] -= scale[0] * dy[i];
      g.d_scale[0] += dy[i] * (x[i] - shift[0]);
    }
    return g;
  }
};

// `size` elements per term.
struct WeightedSumReference {
  std::vector<double> x, weights;
  size_t size = 0;

  std::vector<double> Forward() const {
    std::vector<double> y(size, 0);
    for (size_t k = 0; k < weights.size(); ++k) {
      for (size_t i = 0; i < size; ++i) y[i] += weights[k] * x[k * size + i];
    }
    return y;
  }
  struct Gradients {
    std::vector<double> dx, d_weights;
  };
  Gradients Backward(const std::vector<double>& dy) const {
    Gradients g{std::vector<double>(x.size()), std::vector<double>(weights.size(), 0)};
    for (size_t k = 0; k < weights.size(); ++k) {
      for (size_t i = 0; i < size; ++i) {
        g.dx[k * size + i] = weights[k] * dy[i];
        g.d_weights[k] += dy[i] * x[k * size + i];
      }
    }
    return g;
  }
};

// y; dx; the gradients of the learned numbers, which are added to what is there.
template <typename T>
struct ScaleResults {
  std::vector<T> y, dx, sums;
};

template <typename T>
constexpr double kRoundoff = std::is_same_v<T, float> ? 0 : kBFloat16Roundoff;

template <typename X, typename Y>
struct HeadScaleCase {
  HeadScaleCase(int64_t rows, int64_t heads, int64_t head_width)
      : rows(rows), width(heads * head_width), gain(NormalValues(heads, 3)) {}

  template <typename Lab>
  ScaleResults<float> Run(Lab&& lab, bool in_place) const {
    auto in = lab.template Matrix<X>(x, width), y = lab.template Matrix<X>(in_place ? x : dy, width),
         gradient = lab.template Matrix<X>(dy, width), fresh = lab.template Matrix<X>(x, width);
    auto gains = lab.Vector(gain), sums = lab.Vector(gain),
         partials = lab.Vector(std::vector<float>(HeadScalePartials(rows, std::ssize(gain)), NAN));
    lab.Run(HeadScaleForwardArgs{.x = in_place ? y.view() : in.view(), .gain = gains.view(), .y = y.view()});
    auto& dx = in_place ? gradient : fresh;
    lab.Run(HeadScaleBackwardArgs{.dy = gradient.view(),
                                  .x = in.view(),
                                  .gain = gains.view(),
                                  .dx = dx.view(),
                                  .d_gain = sums.view(),
                                  .partials = partials.view()});
    EXPECT_TRUE(y.guards_intact() && dx.guards_intact());
    return {y.dense(), dx.dense(), sums.Read()};
  }
  ScaleResults<double> Reference() const {
    const HeadScaleReference reference = {rows, width, Widen(x), Widen(gain)};
    HeadScaleReference::Gradients g = reference.Backward(Widen(dy));
    for (size_t h = 0; h < gain.size(); ++h) g.d_gain[h] += gain[h];
    return {reference.Forward(), g.dx, g.d_gain};
  }

  int64_t rows, width;
  std::vector<float> gain, x = Rounded<X>(NormalValues(rows * width, 1)),
                           dy = Rounded<X>(NormalValues(rows * width, 2));
  double y_magnitude = 4, dx_magnitude = 4, multiple = 1, y_roundoff = kRoundoff<Y>, dx_roundoff = kRoundoff<X>;
  double elements = static_cast<double>(rows * width / std::ssize(gain));  // of one sum
};

// LayerNorm with a shift, or RMSNorm without.
template <typename X>
struct HeadNormCase {
  HeadNormCase(bool centred, int64_t rows, int64_t heads, int64_t head_width)
      : form{.centred = centred, .epsilon = 1e-3f},
        rows(rows),
        width(heads * head_width),
        scale(NormalValues(head_width, 3)) {
    if (centred) shift = NormalValues(head_width, 4);
    elements = static_cast<double>(rows * heads);
  }

  template <typename Lab>
  ScaleResults<float> Run(Lab&& lab, bool in_place) const {
    auto in = lab.template Matrix<X>(x, width), y = lab.template Matrix<X>(in_place ? x : dy, width),
         gradient = lab.template Matrix<X>(dy, width), fresh = lab.template Matrix<X>(x, width);
    auto scales = lab.Vector(scale), shifts = lab.Vector(shift), d_scale = lab.Vector(scale),
         d_shift = lab.Vector(shift),
         partials = lab.Vector(std::vector<float>(HeadNormPartials(rows, std::ssize(scale)), NAN));
    HeadNormForwardArgs forward{.x = in_place ? y.view() : in.view(), .scale = scales.view(), .form = form};
    forward.y = y.view();
    auto& dx = in_place ? gradient : fresh;
    HeadNormBackwardArgs backward{.dy = gradient.view(), .x = in.view(), .scale = scales.view(), .form = form};
    backward.dx = dx.view(), backward.d_scale = d_scale.view(), backward.partials = partials.view();
    if (form.centred) forward.shift = shifts.view(), backward.d_shift = d_shift.view();
    lab.Run(forward);
    lab.Run(backward);
    EXPECT_TRUE(y.guards_intact() && dx.guards_intact());
    std::vector<float> sums = d_scale.Read();
    if (form.centred) {
      const std::vector<float> of_shift = d_shift.Read();
      sums.insert(sums.end(), of_shift.begin(), of_shift.end());
    }
    return {y.dense(), dx.dense(), sums};
  }
  ScaleResults<double> Reference() const {
    const HeadNormReference reference = {form, Widen(x), Widen(scale), Widen(shift)};
    HeadNormReference::Gradients g = reference.Backward(Widen(dy));
    std::vector<double> sums;
    for (size_t c = 0; c < scale.size(); ++c) sums.push_back(g.d_scale[c] + scale[c]);
    for (size_t c = 0; c < shift.size(); ++c) sums.push_back(g.d_shift[c] + shift[c]);
    return {reference.Forward(), g.dx, sums};
  }

  NormForm form;
  int64_t rows, width;
  std::vector<float> scale, shift, x = Rounded<X>(NormalValues(rows * width, 1)),
                                   dy = Rounded<X>(NormalValues(rows * width, 2));
  double y_magnitude = 8, dx_magnitude = 40, multiple = 8, y_roundoff = kRoundoff<X>, dx_roundoff = kRoundoff<X>;
  double elements = 1;  // of one sum
};

template <typename X, typename Y>
struct WeightedSumCase {
  WeightedSumCase(int64_t rows, int64_t width, int64_t terms)
      : rows(rows),
        width(width),
        x(Rounded<X>(NormalValues(terms * rows * width, 1))),
        weights(NormalValues(terms, 3)) {}

  template <typename Lab>
  ScaleResults<float> Run(Lab&& lab, bool /*in_place*/) const {
    auto in = lab.template Matrix<X>(x, width), gradient = lab.template Matrix<X>(dy, width);
    auto y = lab.template Matrix<Y>(dy, width);
    auto dx = lab.template Matrix<float>(before, width);
    auto w = lab.Vector(weights), sums = lab.Vector(std::vector<float>(weights.size(), 5.0f)),
         partials = lab.Vector(std::vector<float>(WeightedSumPartials(rows, std::ssize(weights)), NAN));
    lab.Run(WeightedSumForwardArgs{.x = in.view(), .weights = w.view(), .y = y.view()});
    lab.Run(WeightedSumBackwardArgs{.dy = gradient.view(),
                                    .x = in.view(),
                                    .weights = w.view(),
                                    .dx = dx.view(),
                                    .d_weights = sums.view(),
                                    .partials = partials.view()});
    EXPECT_TRUE(y.guards_intact() && dx.guards_intact());
    return {y.dense(), dx.dense(), sums.Read()};
  }
  ScaleResults<double> Reference() const {
    const WeightedSumReference reference = {Widen(x), Widen(weights), static_cast<size_t>(rows * width)};
    WeightedSumReference::Gradients g = reference.Backward(Widen(dy));
    for (double& gradient : g.d_weights) gradient += 5;
    for (size_t i = 0; i < g.dx.size(); ++i) g.dx[i] += before[i];
    return {reference.Forward(), g.dx, g.d_weights};
  }

  int64_t rows, width;
  std::vector<float> x, weights, dy = Rounded<X>(NormalValues(rows * width, 2)),
                                 before = NormalValues(std::ssize(x), 4);
  double y_magnitude = 4 * static_cast<double>(weights.size()), dx_magnitude = 8, multiple = 2;
  double y_roundoff = kRoundoff<Y>, dx_roundoff = 0;
  double elements = static_cast<double>(rows * width);
};

template <typename X, typename Y>
struct ShiftScaleCase {
  ShiftScaleCase(int64_t rows, int64_t width, bool scaled, bool accumulate)
      : rows(rows), width(width), scaled(scaled), accumulate(accumulate) {}

  template <typename Lab>
  ScaleResults<float> Run(Lab&& lab, bool in_place) const {
    in_place = in_place && std::is_same_v<X, Y>;
    auto in = lab.template Matrix<X>(x, width), over = lab.template Matrix<X>(x, width),
         fresh = lab.template Matrix<X>(before, width);
    auto apart = lab.template Matrix<Y>(dy, width), gradient = lab.template Matrix<Y>(dy, width);
    auto shift = lab.Vector({kShift}), scale = lab.Vector({kScale}), d_shift = lab.Vector({5}),
         d_scale = lab.Vector({7}), partials = lab.Vector(std::vector<float>(ShiftScalePartials(rows), NAN));
    ShiftScaleForwardArgs forward{.x = in.view(), .shift = shift.view(), .y = apart.view()};
    ShiftScaleBackwardArgs backward{.dy = gradient.view(), .shift = shift.view(), .accumulate = accumulate};
    backward.dx = fresh.view(), backward.d_shift = d_shift.view(), backward.partials = partials.view();
    if (scaled) {
      forward.scale = backward.scale = scale.view();
      backward.x = in.view(), backward.d_scale = d_scale.view();
    }
    if (in_place) forward.x = forward.y = over.view();
    const bool dx_in_place = in_place && !accumulate;
    if (dx_in_place) backward.dx = gradient.view();
    lab.Run(forward);
    lab.Run(backward);
    EXPECT_TRUE(apart.guards_intact() && over.guards_intact() && fresh.guards_intact() && gradient.guards_intact());
    return {in_place ? over.dense() : apart.dense(),
            dx_in_place ? gradient.dense() : fresh.dense(),
            {d_shift.Read()[0], d_scale.Read()[0]}};
  }
  ScaleResults<double> Reference() const {
    const ShiftScaleReference reference = {Widen(x), {kShift}, {scaled ? kScale : 1.0f}};
    ShiftScaleReference::Gradients g = reference.Backward(Widen(dy));
    for (size_t i = 0; accumulate && i < x.size(); ++i) g.dx[i] += before[i];
    return {reference.Forward(), g.dx, {g.d_shift[0] + 5, scaled ? g.d_scale[0] + 7 : 7}};
  }

  static constexpr float kShift = 0.3f, kScale = -1.7f;
  int64_t rows, width;
  bool scaled, accumulate;
  std::vector<float> x = Rounded<X>(NormalValues(rows * width, 1)), dy = Rounded<Y>(NormalValues(rows * width, 2)),
                     before = Rounded<X>(NormalValues(rows * width, 3));
  double y_magnitude = 4, dx_magnitude = 8, multiple = 2, elements = static_cast<double>(rows * width);
  double y_roundoff = kRoundoff<Y>, dx_roundoff = kRoundoff<X>;
};

// Beside the reference, and beside what other labs find in place.
template <typename Case, typename Lab>
void ExpectReference(const Case& c, Lab&& lab, std::vector<std::decay_t<Lab>*> others) {
  SCOPED_TRACE(::testing::Message() << c.rows << " rows of " << c.width);
  const ScaleResults<float> found = c.Run(lab, /*in_place=*/false);
  const ScaleResults<double> expected = c.Reference();
  EXPECT_TRUE(NearReference(found.y, expected.y, c.y_magnitude, c.multiple, c.y_roundoff));
  EXPECT_TRUE(NearReference(found.dx, expected.dx, c.dx_magnitude, c.multiple, c.dx_roundoff));
  EXPECT_TRUE(NearReference(found.sums, expected.sums, 4 * std::sqrt(c.elements), 8));
  for (std::decay_t<Lab>* const other : others) {
    const ScaleResults<float> again = c.Run(*other, /*in_place=*/true);
    EXPECT_TRUE(SameBits(again.y, found.y));
    EXPECT_TRUE(SameBits(again.dx, found.dx));
    EXPECT_TRUE(SameBits(again.sums, found.sums));
  }
}

}  // namespace hadal::testing
