// A case of attention residuals, its run in a backend's Lab (Matrix of a number of columns, Vector, and Run, the
// kernels), and the comparison with the reference.
#pragma once

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/attention_residual.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {

constexpr float kReaderEpsilon = 1e-5f;

// The reference: plain loops in double precision, forward alone. Gradients are differences of it. Reader 0 has no open
// sum, as at the start of a block; the others have one each.
struct AttentionResidualReference {
  size_t rows = 0, width = 0, sources = 0, readers = 0;
  bool adds = false, first_is_plain = false;  // reader 0 has no w
  std::vector<double> x, open, query, scale;  // [sources · rows, width], [readers · rows, width], [readers, width]

  std::vector<double> Forward() const {
    std::vector<double> h;
    for (size_t q = 0; q < readers; ++q) {
      for (size_t row = 0; row < rows; ++row) {
        std::vector<const double*> values;
        for (size_t j = 0; j < sources; ++j) values.push_back(&x[(j * rows + row) * width]);
        if (q > 0) values.push_back(&open[(q * rows + row) * width]);
        const bool plain = q == 0 && first_is_plain;
        std::vector<double> weights = plain ? std::vector<double>(values.size(), 1.0) : Weights(q, values);
        for (size_t c = 0; c < width; ++c) {
          double sum = 0;
          for (size_t j = 0; j < values.size(); ++j) sum += weights[j] * values[j][c];
          h.push_back(sum);
        }
      }
    }
    return h;
  }

  std::vector<double> Weights(size_t q, const std::vector<const double*>& values) const {
    const size_t count = adds ? sources : values.size();  // in the softmax
    std::vector<double> weights(values.size(), 1.0);
    double sum = 0;
    for (size_t j = 0; j < count; ++j) {
      double squares = 0, dot = 0;
      for (size_t c = 0; c < width; ++c) {
        squares += values[j][c] * values[j][c];
        dot += query[q * width + c] * scale[q * width + c] * values[j][c];
      }
      weights[j] = std::exp(dot / std::sqrt(squares / static_cast<double>(width) + kReaderEpsilon));
      sum += weights[j];
    }
    for (size_t j = 0; j < count; ++j) weights[j] = weights[j] / sum + (adds ? 1 : 0);
    return weights;
  }

  // The slopes of <dh, h> along `variable`, one of the above, plus `before`.
  std::vector<double> Slopes(std::vector<double>& variable, const std::vector<double>& dh, double before) {
    constexpr double kStep = 1e-5;
    std::vector<double> slopes;
    for (double& value : variable) {
      const double at = value;
      value = at + kStep;
      const double above = Dot(dh, Forward());
      value = at - kStep;
      slopes.push_back((above - Dot(dh, Forward())) / (2 * kStep) + before);
      value = at;
    }
    return slopes;
  }
};

struct AttentionResidualCase {
  AttentionResidualCase(int64_t rows, int64_t width, int64_t sources, int64_t readers, bool adds, bool first_is_plain)
      : rows(rows),
        width(width),
        sources(sources),
        readers(readers),
        adds(adds),
        first_is_plain(first_is_plain),
        x(NormalValues(sources * rows * width, 1)),
        open(NormalValues(readers * rows * width, 2)),
        query(NormalValues(readers * width, 3)),
        scale(NormalValues(readers * width, 4)),
        dh(NormalValues(readers * rows * width, 5)) {}

  AttentionResidualReference Reference() const {
    AttentionResidualReference r{static_cast<size_t>(rows),
                                 static_cast<size_t>(width),
                                 static_cast<size_t>(sources),
                                 static_cast<size_t>(readers),
                                 adds,
                                 first_is_plain};
    r.x = Widen(x), r.open = Widen(open), r.query = Widen(query), r.scale = Widen(scale);
    return r;
  }

  int64_t rows, width, sources, readers;
  bool adds, first_is_plain;
  std::vector<float> x, open, query, scale, dh;
};

struct AttentionResidualResults {
  std::vector<float> h, dx, d_open, d_query, d_scale;
};

// Readers [q, q + together) share a call. All gradients are added to 1.
template <typename Lab>
AttentionResidualResults RunAttentionResidual(Lab&& lab, const AttentionResidualCase& c, int64_t together) {
  const int64_t of_reader = c.rows * c.width;
  const auto matrix = [&](int64_t rows, int64_t columns, float fill) {
    return lab.Matrix(std::vector<float>(rows * columns, fill), columns);
  };
  auto x = lab.Matrix(c.x, c.width), open = lab.Matrix(c.open, c.width), dh = lab.Matrix(c.dh, c.width),
       h = matrix(c.readers * c.rows, c.width, NAN), dx = matrix(c.sources * c.rows, c.width, 1),
       d_open = matrix(c.readers * c.rows, c.width, 1), logits = matrix(c.readers * c.rows, c.sources, NAN),
       d_logits = matrix(c.readers * c.rows, c.sources, NAN),
       statistics = matrix(c.readers * c.rows, kReaderStatistics, NAN);
  auto query = lab.Vector(c.query), scale = lab.Vector(c.scale),
       d_query = lab.Vector(std::vector<float>(c.query.size(), 1)),
       d_scale = lab.Vector(std::vector<float>(c.scale.size(), 1)),
       inverse_rms = lab.Vector(std::vector<float>(c.sources * c.rows, NAN)),
       partials = lab.Vector(std::vector<float>(ReaderPartials(c.rows, c.width, together), NAN));
  std::vector<SourceReader> readers(c.readers);
  for (int64_t q = c.first_is_plain ? 1 : 0; q < c.readers; ++q) {
    const auto part = [&](auto& vector) { return Vector(vector.view().data + q * c.width, c.width); };
    readers[q] = {part(query), part(scale), part(d_query), part(d_scale)};
  }
  const auto rows_of = [&](auto& all, int64_t first, int64_t count) {
    return all.view().Rows(first * c.rows, count * c.rows);
  };
  const auto in_calls = [&](const auto& call) {
    for (int64_t last = c.readers; last > 0; last = std::max(int64_t{0}, last - together)) {
      const int64_t first = std::max(int64_t{0}, last - together);
      call(first, last - first, std::span(readers).subspan(first, last - first));
    }
  };
  in_calls([&](int64_t first, int64_t count, std::span<const SourceReader> some) {
    lab.Run(ReadSourcesForwardArgs{.x = x.view(),
                                   .readers = some,
                                   .adds = c.adds,
                                   .epsilon = kReaderEpsilon,
                                   .inverse_rms = inverse_rms.view(),
                                   .logits = rows_of(logits, first, count),
                                   .statistics = rows_of(statistics, first, count),
                                   .y = rows_of(h, first, count)});
  });
  for (int64_t q = 1; q < c.readers; ++q) {
    lab.Run(ReadOpenForwardArgs{.open = rows_of(open, q, 1),
                                .reader = readers[q],
                                .adds = c.adds,
                                .epsilon = kReaderEpsilon,
                                .statistics = rows_of(statistics, q, 1),
                                .y = rows_of(h, q, 1)});
  }
  AttentionResidualResults results;
  results.h = h.dense();
  for (int64_t q = c.readers - 1; q > 0; --q) {
    lab.Run(ReadOpenBackwardArgs{.dh = rows_of(dh, q, 1),
                                 .open = rows_of(open, q, 1),
                                 .reader = readers[q],
                                 .adds = c.adds,
                                 .statistics = rows_of(statistics, q, 1),
                                 .h = rows_of(h, q, 1),
                                 .d_open = rows_of(d_open, q, 1),
                                 .partials = partials.view()});
  }
  const std::vector<float> passed = h.dense();
  EXPECT_TRUE(std::equal(passed.begin() + of_reader, passed.end(), c.dh.begin() + of_reader)) << "dh in h's place";
  in_calls([&](int64_t first, int64_t count, std::span<const SourceReader> some) {
    lab.Run(ReadSourcesBackwardArgs{.dh = rows_of(dh, first, count),
                                    .x = x.view(),
                                    .readers = some,
                                    .adds = c.adds,
                                    .inverse_rms = inverse_rms.view(),
                                    .logits = rows_of(logits, first, count),
                                    .statistics = rows_of(statistics, first, count),
                                    .d_logits = rows_of(d_logits, first, count),
                                    .dx = dx.view(),
                                    .partials = partials.view()});
  });
  EXPECT_TRUE(h.guards_intact() && dx.guards_intact() && d_open.guards_intact());
  results.dx = dx.dense(), results.d_open = d_open.dense();
  results.d_query = d_query.Read(), results.d_scale = d_scale.Read();
  return results;
}

inline void ExpectReference(const AttentionResidualCase& c, const AttentionResidualResults& found) {
  AttentionResidualReference reference = c.Reference();
  const std::vector<double> dh = Widen(c.dh);
  EXPECT_TRUE(NearReference(found.h, reference.Forward(), 4, 60));
  EXPECT_TRUE(NearInL2(found.dx, reference.Slopes(reference.x, dh, 1), 3e-6));
  EXPECT_TRUE(NearInL2(found.d_open, reference.Slopes(reference.open, dh, 1), 3e-6));
  EXPECT_TRUE(NearInL2(found.d_query, reference.Slopes(reference.query, dh, 1), 3e-6));
  EXPECT_TRUE(NearInL2(found.d_scale, reference.Slopes(reference.scale, dh, 1), 3e-6));
}

inline void ExpectSameBits(const AttentionResidualResults& a, const AttentionResidualResults& b) {
  EXPECT_TRUE(SameBits(a.h, b.h));
  EXPECT_TRUE(SameBits(a.dx, b.dx));
  EXPECT_TRUE(SameBits(a.d_open, b.d_open));
  EXPECT_TRUE(SameBits(a.d_query, b.d_query));
  EXPECT_TRUE(SameBits(a.d_scale, b.d_scale));
}

}  // namespace hadal::testing
