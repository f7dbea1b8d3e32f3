#include "kernels/cuda/operations.h"

#include <algorithm>
#include <initializer_list>
#include <span>

#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kTogether = 3;                       // readers that share a reading of the sources
constexpr int kTwoBlocks = 2 * kTeamBlockThreads;  // limits the registers so that a multiprocessor holds two blocks
static_assert(kTwoBlocks >= kMaxTeamBlockThreads);
// Of QueryGradientKernel: threads of a block, columns of a lane and of a warp, rows that a lane loads at once.
constexpr int kThreads = 64, kLaneColumns = 4, kStrip = kLaneColumns * kWarp, kRowsAhead = 8;
static_assert(kReaderRowBlock % kRowsAhead == 0);

// A call's readers, in a launch's arguments.
struct Readers {
  int count = 0, last = 0;  // last: the first of the last kTogether
  SourceReader of[kMostReaders];
};

// Readers [first, first + kTogether) of a row.
struct Reading {
  const Readers& readers;
  const RowTeam& team;
  int64_t rows, row;  // R
  int first = 0;

  HADAL_DEVICE bool mine() const { return row < rows && team.columns > 0; }  // else a thread only adds zeros to sums
  HADAL_DEVICE bool stores() const { return mine() && team.column == 0; }    // the row's numbers
  HADAL_DEVICE bool has(int i) const { return first + i < readers.count; }
  HADAL_DEVICE bool attends(int i) const { return has(i) && Given(readers.of[first + i].query); }
  HADAL_DEVICE int64_t row_of(int i) const { return (first + i) * rows + row; }
};

template <bool kAligned>
HADAL_DEVICE Eight LoadRow(const DeviceMatrix<const float>& m, int64_t row, const RowTeam& team) {
  return LoadEight<kAligned>(m.row(row) + team.column, team.columns);
}

// w ⊙ g of a thread's columns.
template <bool kAligned>
HADAL_DEVICE Eight QueryOf(const SourceReader& reader, const RowTeam& team) {
  Eight query = LoadEight<kAligned>(ViewOf(reader.query) + team.column, team.columns);
  const Eight scale = LoadEight<kAligned>(ViewOf(reader.scale) + team.column, team.columns);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) query.v[c] *= scale.v[c];
  return query;
}

// A thread's part.
HADAL_DEVICE float Dot(const Eight& a, const Eight& b) {
  float dot = 0.0f;
  HADAL_UNROLL for (int c = 0; c < 8; ++c) dot = MulAdd(a.v[c], b.v[c], dot);
  return dot;
}

HADAL_DEVICE float InverseRms(float squares, int64_t width, float epsilon) {
  return 1.0f / SquareRoot(squares / static_cast<float>(width) + epsilon);
}

struct Logit {
  float value = 0.0f, gradient = 0.0f, inverse_rms = 0.0f;
};

// d, a gradient of V, += weight·dh and that through the logit.
HADAL_DEVICE void AddGradient(float weight, const Eight& dh, const Logit& logit, const Eight& query, const Eight& v,
                              int64_t width, Eight& d) {
  const float of_query = logit.gradient * logit.inverse_rms;
  const float of_value = -of_query * logit.value * logit.inverse_rms / static_cast<float>(width);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    d.v[c] = MulAdd(of_value, v.v[c], MulAdd(of_query, query.v[c], MulAdd(weight, dh.v[c], d.v[c])));
  }
}

template <bool kAligned>
HADAL_DEVICE void ReadSources(const ReadSourcesForwardArgs& args, const Reading& r, TeamSums<kTogether + 1>& sums) {
  Eight query[kTogether], read[kTogether], plain, next;  // Σ e^(l − largest)·V and Σ V
  float largest[kTogether], sum[kTogether] = {};
  HADAL_UNROLL for (int i = 0; i < kTogether; ++i) {
    largest[i] = r.attends(i) ? -INFINITY : 0.0f;
    if (r.mine() && r.attends(i)) query[i] = QueryOf<kAligned>(r.readers.of[r.first + i], r.team);
  }
  if (r.mine()) next = LoadRow<kAligned>(ViewOf(args.x), r.row, r.team);
  for (int64_t j = 0; j < args.logits.columns; ++j) {
    const int64_t source = j * r.rows + r.row;
    const Eight v = next;
    if (r.mine() && j + 1 < args.logits.columns) next = LoadRow<kAligned>(ViewOf(args.x), source + r.rows, r.team);
    float of_row[kTogether + 1];
    HADAL_UNROLL for (int i = 0; i < kTogether; ++i) of_row[i] = Dot(query[i], v);
    of_row[kTogether] = Dot(v, v);
    sums.Add(r.team, of_row);
    const float inverse_rms = InverseRms(of_row[kTogether], args.y.columns, args.epsilon);
    if (r.stores() && r.first == 0) Store(ViewOf(args.inverse_rms) + source, inverse_rms);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) plain.v[c] += v.v[c];
    HADAL_UNROLL for (int i = 0; i < kTogether; ++i) {
      if (!r.attends(i)) continue;
      const float logit = of_row[i] * inverse_rms, above = logit - largest[i];
      const float smaller = FastExp(above > 0.0f ? -above : above);
      const float before = above > 0.0f ? smaller : 1.0f, weight = above > 0.0f ? 1.0f : smaller;
      if (above > 0.0f) largest[i] = logit;
      sum[i] = MulAdd(sum[i], before, weight);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) read[i].v[c] = MulAdd(weight, v.v[c], before * read[i].v[c]);
      if (r.stores()) Store(ViewOf(args.logits).row(r.row_of(i)) + j, logit);
    }
  }
  HADAL_UNROLL for (int i = 0; i < kTogether; ++i) {
    if (!r.mine() || !r.has(i)) continue;
    const float share = r.attends(i) ? 1.0f / sum[i] : 0.0f, of_plain = r.attends(i) && !args.adds ? 0.0f : 1.0f;
    HADAL_UNROLL for (int c = 0; c < 8; ++c) read[i].v[c] = MulAdd(share, read[i].v[c], of_plain * plain.v[c]);
    StoreEight<kAligned>(ViewOf(args.y).row(r.row_of(i)) + r.team.column, read[i], r.team.columns);
    const float statistics[kReaderStatistics] = {largest[i], sum[i]};
    HADAL_UNROLL for (int s = 0; r.stores() && s < kReaderStatistics; ++s) {
      Store(ViewOf(args.statistics).row(r.row_of(i)) + s, statistics[s]);
    }
  }
}

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kTwoBlocks)
    ReadSourcesForwardKernel(ReadSourcesForwardArgs args, Readers readers, int team_threads) {
  HADAL_SHARED(float, slots, TeamSums<kTogether + 1>::kSlots);
  TeamSums<kTogether + 1> sums = {slots};
  const RowTeam team = ThisRowTeam(args.y.columns, team_threads);
  Reading reading = {readers, team, args.y.rows / readers.count, BlockX() * team.teams + team.index};
  for (; reading.first < readers.count; reading.first += kTogether) ReadSources<kAligned>(args, reading, sums);
}

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kMaxTeamBlockThreads)
    ReadOpenForwardKernel(ReadOpenForwardArgs args, int team_threads) {
  HADAL_SHARED(float, slots, TeamSums<2>::kSlots);
  TeamSums<2> sums = {slots};
  const RowTeam team = ThisRowTeam(args.y.columns, team_threads);
  const int64_t row = BlockX() * team.teams + team.index;
  const bool mine = row < args.y.rows && team.columns > 0, attends = !args.adds && Given(args.reader.query);
  Eight p, y, query;
  if (mine) p = LoadRow<kAligned>(ViewOf(args.open), row, team);
  if (mine) y = LoadRow<kAligned>(ViewOf(args.y), row, team);
  if (mine && attends) query = QueryOf<kAligned>(args.reader, team);
  float of_row[2] = {Dot(p, p), Dot(query, p)}, of_sources = 1.0f, of_open = 1.0f;
  if (attends) sums.Add(team, of_row);
  if (!mine) return;
  if (attends) {
    const DevicePointer<float> statistics = ViewOf(args.statistics).row(row);
    const float inverse_rms = InverseRms(of_row[0], args.y.columns, args.epsilon), logit = of_row[1] * inverse_rms;
    const float above = logit - Load(statistics + kSourcesLargest), sum = Load(statistics + kSourcesSum);
    // Both weights in units of e^(the larger of l_P and the sources' largest logit).
    of_sources = above > 0.0f ? sum * FastExp(-above) : sum;
    of_open = above > 0.0f ? 1.0f : FastExp(above);
    const float share = 1.0f / (of_sources + of_open);
    of_sources *= share, of_open *= share;
    if (team.column == 0) {
      Store(statistics + kOpenInverseRms, inverse_rms);
      Store(statistics + kOpenLogit, logit);
      Store(statistics + kOpenWeight, of_open);
    }
  }
  HADAL_UNROLL for (int c = 0; c < 8; ++c) y.v[c] = MulAdd(of_open, p.v[c], of_sources * y.v[c]);
  StoreEight<kAligned>(ViewOf(args.y).row(row) + team.column, y, team.columns);
}

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kTwoBlocks) ReadOpenBackwardKernel(ReadOpenBackwardArgs args, int team_threads) {
  HADAL_SHARED(float, slots, TeamSums<2>::kSlots);
  TeamSums<2> sums = {slots};
  const RowTeam team = ThisRowTeam(args.dh.columns, team_threads);
  const int64_t row = BlockX() * team.teams + team.index;
  const bool mine = row < args.dh.rows && team.columns > 0, attends = !args.adds && Given(args.reader.query);
  Eight dh, d_open, p, h, query;
  if (mine) dh = LoadRow<kAligned>(ViewOf(args.dh), row, team);
  if (mine) d_open = LoadRow<kAligned>(ViewOf(args.d_open), row, team);
  if (mine && attends) p = LoadRow<kAligned>(ViewOf(args.open), row, team);
  if (mine && attends) h = LoadRow<kAligned>(ViewOf(args.h), row, team);
  if (mine && attends) query = QueryOf<kAligned>(args.reader, team);
  float dots[2] = {Dot(dh, p), Dot(dh, h)}, weight = 1.0f;
  if (attends) sums.Add(team, dots);
  if (!mine) return;
  Logit logit;
  if (attends) {
    const DevicePointer<float> statistics = ViewOf(args.statistics).row(row);
    weight = Load(statistics + kOpenWeight);
    logit = {Load(statistics + kOpenLogit), weight * (dots[0] - dots[1]), Load(statistics + kOpenInverseRms)};
    if (team.column == 0) Store(statistics + kOpenLogitGradient, logit.gradient);
  }
  AddGradient(weight, dh, logit, query, p, args.dh.columns, d_open);
  StoreEight<kAligned>(ViewOf(args.d_open).row(row) + team.column, d_open, team.columns);
  StoreEight<kAligned>(ViewOf(args.h).row(row) + team.column, dh, team.columns);
}

// What a thread keeps of a reader of the sources.
struct ReaderTerms {
  Eight dh, query;
  float largest = 0.0f, inverse_sum = 0.0f, of_sources = 0.0f;
  float mean = 0.0f;  // of the gradients of the weights, and of the open sum's logit

  HADAL_DEVICE float Weight(float logit) const { return FastExp(logit - largest) * inverse_sum; }  // β
};

template <bool kAligned>
HADAL_DEVICE void LoadTerms(const ReadSourcesBackwardArgs& args, const Reading& r, ReaderTerms (&terms)[kTogether]) {
  HADAL_UNROLL for (int i = 0; i < kTogether; ++i) {
    if (!r.mine() || !r.has(i)) continue;
    terms[i].dh = LoadRow<kAligned>(ViewOf(args.dh), r.row_of(i), r.team);
    if (!r.attends(i)) continue;
    terms[i].query = QueryOf<kAligned>(r.readers.of[r.first + i], r.team);
    const DevicePointer<const float> statistics = ViewOf(args.statistics).row(r.row_of(i));
    terms[i].largest = Load(statistics + kSourcesLargest);
    terms[i].inverse_sum = 1.0f / Load(statistics + kSourcesSum);
    terms[i].of_sources = 1.0f - Load(statistics + kOpenWeight);
    terms[i].mean = Load(statistics + kOpenLogitGradient);
  }
}

template <bool kAligned>
HADAL_DEVICE void AddMeans(const ReadSourcesBackwardArgs& args, const Reading& r, ReaderTerms (&terms)[kTogether],
                           TeamSums<kTogether>& sums) {
  Eight next;
  if (r.mine()) next = LoadRow<kAligned>(ViewOf(args.x), r.row, r.team);
  for (int64_t j = 0; j < args.logits.columns; ++j) {
    const Eight v = next;
    if (r.mine() && j + 1 < args.logits.columns) {
      next = LoadRow<kAligned>(ViewOf(args.x), (j + 1) * r.rows + r.row, r.team);
    }
    float dots[kTogether];
    HADAL_UNROLL for (int i = 0; i < kTogether; ++i) dots[i] = Dot(terms[i].dh, v);
    sums.Add(r.team, dots);
    HADAL_UNROLL for (int i = 0; i < kTogether; ++i) {
      if (!r.mine() || !r.attends(i)) continue;
      const float weight = terms[i].Weight(Load(ViewOf(args.logits).row(r.row_of(i)) + j));
      terms[i].mean = MulAdd(weight, terms[i].of_sources * dots[i], terms[i].mean);
    }
  }
}

// dx and d_logits of source j. The dot products are computed again, which costs less than an exchange among threads.
template <bool kAligned>
HADAL_DEVICE void SourceGradient(const ReadSourcesBackwardArgs& args, const Reading& r, int64_t j,
                                 const ReaderTerms (&terms)[kTogether], TeamSums<kTogether>& sums) {
  const int64_t source = j * r.rows + r.row;
  Eight v, dx;
  if (r.mine()) v = LoadRow<kAligned>(ViewOf(args.x), source, r.team);
  if (r.mine()) dx = LoadRow<kAligned>(ViewOf(args.dx), source, r.team);
  float dots[kTogether];
  HADAL_UNROLL for (int i = 0; i < kTogether; ++i) dots[i] = Dot(terms[i].dh, v);
  sums.Add(r.team, dots);
  if (!r.mine()) return;
  const float inverse_rms = Load(ViewOf(args.inverse_rms) + source);
  HADAL_UNROLL for (int i = kTogether - 1; i >= 0; --i) {
    if (!r.has(i)) continue;
    float weight = args.adds || !r.attends(i) ? 1.0f : 0.0f;
    Logit logit;
    if (r.attends(i)) {
      logit.value = Load(ViewOf(args.logits).row(r.row_of(i)) + j);
      const float softmax = terms[i].Weight(logit.value);
      logit.gradient = softmax * (terms[i].of_sources * dots[i] - terms[i].mean);
      logit.inverse_rms = inverse_rms;
      weight = MulAdd(terms[i].of_sources, softmax, weight);
      if (r.stores()) Store(ViewOf(args.d_logits).row(r.row_of(i)) + j, logit.gradient);
    }
    AddGradient(weight, terms[i].dh, logit, terms[i].query, v, args.dh.columns, dx);
  }
  StoreEight<kAligned>(ViewOf(args.dx).row(source) + r.team.column, dx, r.team.columns);
}

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kTwoBlocks)
    ReadSourcesBackwardKernel(ReadSourcesBackwardArgs args, Readers readers, int team_threads) {
  HADAL_SHARED(float, slots, TeamSums<kTogether>::kSlots);
  TeamSums<kTogether> sums = {slots};
  const RowTeam team = ThisRowTeam(args.dh.columns, team_threads);
  Reading r = {readers, team, args.dh.rows / readers.count, BlockX() * team.teams + team.index};
  for (r.first = readers.last; r.first >= 0; r.first -= kTogether) {
    ReaderTerms terms[kTogether];
    LoadTerms<kAligned>(args, r, terms);
    AddMeans<kAligned>(args, r, terms, sums);
    for (int64_t j = 0; j < args.logits.columns; ++j) SourceGradient<kAligned>(args, r, j, terms, sums);
  }
}

// Of w ⊙ g, Σ_j Σ_rows dl_j r_j V_j. K sources: open sums have K = 1.
struct QueryGradientArgs {
  DeviceMatrix<const float> x, d_logits, inverse_rms;  // [K·R, d], [Q·R, K], [K·R, 1]
  int64_t rows, width, sources;
  DevicePointer<float> partials;  // [blocks of rows, Q, d]
};

// A warp: a block of rows, kStrip columns, of all readers.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) QueryGradientKernel(QueryGradientArgs args, Readers readers) {
  const int64_t strips = (args.width + kStrip - 1) / kStrip, warp = (BlockX() * kThreads + ThreadIndex()) / kWarp;
  const int64_t block = warp / strips, column = warp % strips * kStrip + ThreadIndex() % kWarp;
  const int64_t first = block * kReaderRowBlock, end = first + kReaderRowBlock;
  float sums[kMostReaders][kLaneColumns] = {};
  for (int64_t j = 0; j < args.sources; ++j) {
    for (int64_t row = first; row < end && row < args.rows; row += kRowsAhead) {
      float v[kRowsAhead][kLaneColumns];
      HADAL_UNROLL for (int i = 0; i < kRowsAhead; ++i) {
        HADAL_UNROLL for (int k = 0; k < kLaneColumns; ++k) {
          const int64_t c = column + k * kWarp;
          v[i][k] = row + i < args.rows && c < args.width ? Load(args.x.row(j * args.rows + row + i) + c) : 0.0f;
        }
      }
      HADAL_UNROLL for (int i = 0; i < kRowsAhead; ++i) {
        if (row + i >= args.rows) continue;
        const float inverse_rms = Load(args.inverse_rms.row(j * args.rows + row + i));
        HADAL_UNROLL for (int q = 0; q < kMostReaders; ++q) {
          if (q >= readers.count || !Given(readers.of[q].query)) continue;
          const float of_query = Load(args.d_logits.row(q * args.rows + row + i) + j) * inverse_rms;
          HADAL_UNROLL for (int k = 0; k < kLaneColumns; ++k) sums[q][k] = MulAdd(of_query, v[i][k], sums[q][k]);
        }
      }
    }
  }
  HADAL_UNROLL for (int q = 0; q < kMostReaders; ++q) {
    HADAL_UNROLL for (int k = 0; k < kLaneColumns; ++k) {
      const int64_t c = column + k * kWarp;
      if (first >= args.rows || q >= readers.count || c >= args.width) continue;
      Store(args.partials + ((block * readers.count + q) * args.width + c), sums[q][k]);
    }
  }
}

// A thread: a column of a reader's w and g. `sums` [Q, d]: the gradients of w ⊙ g.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads)
    AddQueryGradientKernel(Readers readers, DevicePointer<const float> sums, int64_t width) {
  const int64_t i = BlockX() * kThreads + ThreadIndex(), q = i / width, c = i % width;
  if (q >= readers.count || !Given(readers.of[q].query)) return;
  const SourceReader& reader = readers.of[q];
  const DevicePointer<float> d_query = ViewOf(reader.d_query) + c, d_scale = ViewOf(reader.d_scale) + c;
  Store(d_query, MulAdd(Load(sums + i), Load(ViewOf(reader.scale) + c), Load(d_query)));
  Store(d_scale, MulAdd(Load(sums + i), Load(ViewOf(reader.query) + c), Load(d_scale)));
}

// The blocks' sums are added to the first block's.
void AddQueryGradients(StreamHandle stream, const QueryGradientArgs& args, const Readers& readers) {
  const auto blocks_of = [](int64_t threads) { return (threads + kThreads - 1) / kThreads; };
  const int64_t blocks = ReaderPartials(args.rows, 1, 1), all = readers.count * args.width;
  const int64_t warps = blocks * ((args.width + kStrip - 1) / kStrip);
  Launch(stream, {.blocks_x = blocks_of(warps * kWarp), .threads = kThreads}, QueryGradientKernel, args, readers);
  const ColumnMerge merge = {.parts = args.partials.address + all,
                             .count = blocks - 1,
                             .stride = all,
                             .width = all,
                             .sums = args.partials.address};
  if (merge.count > 0) MergeColumns(stream, {&merge, 1});
  Launch(stream, {.blocks_x = blocks_of(all), .threads = kThreads}, AddQueryGradientKernel, readers,
         DevicePointer<const float>(args.partials), args.width);
}

Readers ReadersOf(std::span<const SourceReader> readers) {
  Readers result = {.count = static_cast<int>(readers.size())};
  result.last = (result.count - 1) / kTogether * kTogether;
  std::copy(readers.begin(), readers.end(), result.of);
  return result;
}

// Launches a kernel with a row a team. `matrices`: the first one [Q·R, d].
template <typename Kernel, typename... Args>
void LaunchTeams(StreamHandle stream, Kernel* aligned, Kernel* any, std::initializer_list<ConstAnyMatrix> matrices,
                 std::span<const SourceReader> readers, const Args&... args) {
  const int64_t rows = matrices.begin()->rows / std::ssize(readers), width = matrices.begin()->columns;
  HADAL_CHECK_LE(width, kMaxTeamWidth);
  bool is_aligned = InAlignedEights(width, matrices);
  for (const SourceReader& reader : readers) is_aligned = is_aligned && On16Bytes(reader.query, reader.scale);
  const RowTeamShape team = RowTeamShapeOf(width);
  Launch(stream, {.blocks_x = (rows + team.teams - 1) / team.teams, .threads = team.block_threads()},
         is_aligned ? aligned : any, args..., team.team_threads);
}

}  // namespace

void ReadSourcesForward(StreamHandle stream, const ReadSourcesForwardArgs& args) {
  LaunchTeams(stream, ReadSourcesForwardKernel<true>, ReadSourcesForwardKernel<false>, {args.y, args.x}, args.readers,
              args, ReadersOf(args.readers));
}

void ReadOpenForward(StreamHandle stream, const ReadOpenForwardArgs& args) {
  LaunchTeams(stream, ReadOpenForwardKernel<true>, ReadOpenForwardKernel<false>, {args.y, args.open}, {&args.reader, 1},
              args);
}

void ReadOpenBackward(StreamHandle stream, const ReadOpenBackwardArgs& args) {
  LaunchTeams(stream, ReadOpenBackwardKernel<true>, ReadOpenBackwardKernel<false>,
              {args.dh, args.open, args.h, args.d_open}, {&args.reader, 1}, args);
  if (args.adds || !Given(args.reader.query)) return;
  const DeviceMatrix<const float> statistics = ViewOf(args.statistics);
  AddQueryGradients(stream,
                    {.x = ViewOf(args.open),
                     .d_logits = {statistics.data + kOpenLogitGradient, statistics.stride},
                     .inverse_rms = {statistics.data + kOpenInverseRms, statistics.stride},
                     .rows = args.dh.rows,
                     .width = args.dh.columns,
                     .sources = 1,
                     .partials = ViewOf(args.partials)},
                    ReadersOf({&args.reader, 1}));
}

void ReadSourcesBackward(StreamHandle stream, const ReadSourcesBackwardArgs& args) {
  const Readers readers = ReadersOf(args.readers);
  LaunchTeams(stream, ReadSourcesBackwardKernel<true>, ReadSourcesBackwardKernel<false>, {args.dh, args.x, args.dx},
              args.readers, args, readers);
  if (std::ranges::none_of(args.readers, [](const SourceReader& reader) { return Given(reader.query); })) return;
  AddQueryGradients(stream,
                    {.x = ViewOf(args.x),
                     .d_logits = ViewOf(args.d_logits),
                     .inverse_rms = {ViewOf(args.inverse_rms), 1},
                     .rows = args.dh.rows / readers.count,
                     .width = args.dh.columns,
                     .sources = args.logits.columns,
                     .partials = ViewOf(args.partials)},
                    readers);
}

}  // namespace hadal::cuda
