#include "kernels/orthogonalize.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/convert.h"
#include "kernels/cpu/product.h"
#include "kernels/device_kernels.h"
#include "kernels/linear.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// Keeps the parts of the workspace aligned.
int64_t Aligned(int64_t floats) { return (floats + 7) / 8 * 8; }

// The memory of an iteration. With operands in bf16 x and `other` lie in the workspace; in fp32 one of them is U, so
// that the last product writes U.
struct Places {
  AnyMatrix x, other;   // [R, C]
  Matrix gram, square;  // [n, n]
  AnyMatrix operand;    // [n, n] A rounded, then the polynomial; in fp32 that of gram and square
};

class Cursor {
 public:
  explicit Cursor(Vector workspace) : next_(workspace.data) {}
  AnyMatrix Take(int64_t rows, int64_t columns, Storage storage) {
    const int64_t floats = (rows * columns * BytesOf(storage) + 3) / 4;
    return {std::exchange(next_, next_ + Aligned(floats)), rows, columns, storage};
  }
  float* end() const { return next_; }

 private:
  float* next_;
};

Places PlacesOf(const OrthogonalizeArgs& args) {
  const int64_t rows = args.u.rows, columns = args.u.columns, n = std::min(rows, columns);
  Cursor cursor(args.workspace);
  Places places;
  places.gram = cursor.Take(n, n, Storage::kFloat32).floats();
  places.square = cursor.Take(n, n, Storage::kFloat32).floats();
  places.x = cursor.Take(rows, columns, args.storage);
  if (args.storage == Storage::kFloat32) {
    places.other = args.u;
    if (args.iteration.steps % 2 == 0) std::swap(places.x, places.other);
  } else {
    places.other = cursor.Take(rows, columns, args.storage);
    places.operand = cursor.Take(n, n, args.storage);
  }
  HADAL_CHECK_LE(cursor.end() - args.workspace.data, args.workspace.size);
  return places;
}

// ---- On the CPU ----

// c[j, i] = c[i, j] for middle ≤ i < end, begin ≤ j < middle.
void Mirror(const Stream& stream, const Matrix& c, int64_t begin, int64_t middle, int64_t end) {
  constexpr int64_t kTile = 16;
  stream.ForRanges((end - middle + kTile - 1) / kTile, 1, [&](int64_t first, int64_t last) {
    for (int64_t i0 = middle + first * kTile; i0 < std::min(end, middle + last * kTile); i0 += kTile) {
      for (int64_t j0 = begin; j0 < middle; j0 += kTile) {
        for (int64_t i = i0; i < std::min(i0 + kTile, end); ++i) {
          for (int64_t j = j0; j < std::min(j0 + kTile, middle); ++j) c.row(j)[i] = c.row(i)[j];
        }
      }
    }
  });
}

// Rows and columns [begin, end) of C = X·Xᵀ (kRowsByRows) or Xᵀ·X (kColumnsByColumns). Halves of the rows, so that what
// is below the diagonal is few large products; few rows as a whole.
void MultiplySquare(const Stream& stream, cpu::ProductForm form, const ConstMatrix& x, const Matrix& c, int64_t begin,
                    int64_t end) {
  constexpr int64_t kWhole = 128, kMultiple = 32;
  const auto multiply = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const auto part = [&](int64_t first, int64_t count) {
      return form == cpu::ProductForm::kRowsByRows ? x.Rows(first, count) : x.Columns(first, count);
    };
    cpu::Product(stream,
                 {.form = form,
                  .a = part(row, rows),
                  .b = part(column, columns),
                  .c = c.Rows(row, rows).Columns(column, columns)},
                 [](const cpu::ProductPart&) {});
  };
  if (end - begin <= kWhole) return multiply(begin, end - begin, begin, end - begin);
  const int64_t middle = begin + ((end - begin) / 2 + kMultiple - 1) / kMultiple * kMultiple;
  MultiplySquare(stream, form, x, c, begin, middle);
  MultiplySquare(stream, form, x, c, middle, end);
  multiply(middle, end - middle, begin, middle - begin);
  Mirror(stream, c, begin, middle, end);
}

void MultiplySymmetric(const Stream& stream, cpu::ProductForm form, const ConstMatrix& x, const Matrix& c) {
  if (form == cpu::ProductForm::kColumnsByColumns) stream.Clear(c.data, c.rows * c.columns * int64_t{sizeof(float)});
  MultiplySquare(stream, form, x, c, 0, c.rows);
}

// ---- On either ----

void Scale(const Stream& stream, const ScaledArgs& args) {
  if (stream.device() != nullptr) return stream.device()->kernels().scaled(stream, args);
  const float* const from = args.from.data;
  float* const to = args.to.floats().data;
  stream.ForRanges(args.from.rows * args.from.columns, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = args.scale * from[i];
  });
}

// gram = X·Xᵀ or Xᵀ·X, the smaller.
void Gram(const Stream& stream, const AnyMatrix& x, const Matrix& gram) {
  const bool wide = x.rows <= x.columns;
  if (stream.device() == nullptr) {
    const auto form = wide ? cpu::ProductForm::kRowsByRows : cpu::ProductForm::kColumnsByColumns;
    return MultiplySymmetric(stream, form, x.floats(), gram);
  }
  if (wide) return LinearForward(stream, {.x = x, .weight = x, .y = gram});
  stream.Clear(gram.data, gram.rows * gram.columns * int64_t{sizeof(float)});
  LinearBackwardWeight(stream, {.dy = x, .x = x, .d_weight = gram});
}

// Returns a·I + b·A + c·A², in places.square or places.operand.
AnyMatrix Polynomial(const Stream& stream, const NewtonSchulz& iteration, const Places& places) {
  const auto a = static_cast<float>(iteration.a), b = static_cast<float>(iteration.b),
             c = static_cast<float>(iteration.c);
  const Matrix gram = places.gram, square = places.square;
  if (stream.device() == nullptr) {
    MultiplySymmetric(stream, cpu::ProductForm::kRowsByRows, gram, square);
    stream.ForRanges(square.rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* const of_gram = gram.row(i);
        float* const sum = square.row(i);
        for (int64_t j = 0; j < square.columns; ++j) sum[j] = b * of_gram[j] + c * sum[j];
        sum[i] += a;
      }
    });
    return square;
  }
  const bool narrow = !places.operand.empty();
  if (narrow) Convert(stream, {.from = gram, .to = places.operand});
  const AnyMatrix operand = narrow ? places.operand : AnyMatrix(gram);
  LinearForward(stream, {.x = operand, .weight = operand, .y = square});
  const AnyMatrix result = narrow ? places.operand : AnyMatrix(square);
  stream.device()->kernels().polynomial(stream, {.a = gram, .square = square, .c0 = a, .c1 = b, .c2 = c, .to = result});
  return result;
}

}  // namespace

void Orthogonalize(const Stream& stream, const OrthogonalizeArgs& args) {
  HADAL_CHECK_EQ(args.u.stride, args.u.columns);
  HADAL_CHECK_GE(args.iteration.steps, 1);
  HADAL_CHECK(stream.device() != nullptr || args.storage == Storage::kFloat32);
  constexpr double kLeastNorm = 1e-7;
  Places places = PlacesOf(args);
  const auto scale = static_cast<float>(1 / std::max(std::sqrt(args.squares), kLeastNorm));
  Scale(stream, {.from = args.u, .scale = scale, .to = places.x});
  for (int32_t step = 0; step < args.iteration.steps; ++step) {
    Gram(stream, places.x, places.gram);
    const AnyMatrix polynomial = Polynomial(stream, args.iteration, places);
    const AnyMatrix next = step + 1 == args.iteration.steps ? AnyMatrix(args.u) : places.other;
    HADAL_CHECK(next.data != places.x.data);
    if (args.u.rows <= args.u.columns) {
      LinearBackwardInput(stream, {.dy = polynomial, .weight = places.x, .dx = next});
    } else {
      LinearForward(stream, {.x = places.x, .weight = polynomial, .y = next});
    }
    std::swap(places.x, places.other);
  }
}

int64_t OrthogonalizeFloats(int64_t rows, int64_t columns, Storage storage) {
  const int64_t n = std::min(rows, columns), bytes = BytesOf(storage);
  const auto floats = [&](int64_t elements) { return Aligned((elements * bytes + 3) / 4); };
  const int64_t fp32 = 2 * Aligned(n * n) + floats(rows * columns);
  return storage == Storage::kFloat32 ? fp32 : fp32 + floats(rows * columns) + floats(n * n);
}

double OrthogonalizeOperations(int64_t rows, int64_t columns, int32_t steps, bool by_halves) {
  const auto n = static_cast<double>(std::min(rows, columns)), m = static_cast<double>(std::max(rows, columns));
  const double symmetric = n * n * (m + n);
  return 2 * steps * ((by_halves ? symmetric / 2 : symmetric) + n * n * m);
}

}  // namespace hadal
