// Rotary positions (Su et al. 2021, arXiv 2104.09864), half-split as in Llama: the first 2h columns of a head turn in
// pairs (c, c + h), 0 ≤ c < h, by the angle p·w_c, where p is the position in the sentence, counted from 0, and
// w_c = theta^(−c/h):
//   y_c = x_c·cos(p·w_c) − x_{c+h}·sin(p·w_c)    y_{c+h} = x_{c+h}·cos(p·w_c) + x_c·sin(p·w_c)
// Columns from 2h on do not change. The gradient turns back: the same with −sin. Attention's kernels turn queries and
// keys where they read them, and gradients where they write them (attention.h), so that no turned copy is in memory.
// The angles are a table, filled once in double precision and rounded: no kernel computes a sine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/check.h"
#include "runtime/math.h"
#include "runtime/tensor.h"

namespace hadal {

struct Rotary {
  // [positions, 2h]: a row's cosines, then its sines; in the memory of the stream's device. Empty: nothing turns.
  ConstMatrix table;

  bool active() const { return !table.empty(); }
  int64_t half() const { return table.columns / 2; }  // h
};

// Llama 3.1's change of the frequencies w_c for sentences longer than the `positions` that the model was trained on.
// A pair of columns makes t = positions·w_c / 2π full turns within these positions. Its frequency becomes w_c /
// factor if t ≤ 1, w_c if t ≥ 4, and s·w_c + (1 − s)·w_c / factor with s = (t − 1) / 3 in between.
struct RotaryScaling {
  double factor = 1;
  double positions = 8192;

  // Returns the changed frequency; `frequency` itself if factor is 1.
  double Of(double frequency) const {
    constexpr double kPi = 3.14159265358979323846;
    const double share = std::clamp((positions * frequency / (2 * kPi) - 1) / 3, 0.0, 1.0);
    return factor == 1 ? frequency : frequency * (share + (1 - share) / factor);
  }
};

// Fills `table` ([positions, 2h], in host memory; see Rotary::table). REQUIRES: an even number of columns.
inline void FillRotaryTable(double theta, Matrix table, const RotaryScaling& scaling = {}) {
  HADAL_CHECK_EQ(table.columns % 2, 0);
  const int64_t half = table.columns / 2;
  for (int64_t c = 0; c < half; ++c) {
    const double frequency = scaling.Of(Pow(theta, -static_cast<double>(c) / static_cast<double>(half)));
    for (int64_t p = 0; p < table.rows; ++p) {
      table.row(p)[c] = static_cast<float>(Cos(static_cast<double>(p) * frequency));
      table.row(p)[half + c] = static_cast<float>(Sin(static_cast<double>(p) * frequency));
    }
  }
}

}  // namespace hadal
