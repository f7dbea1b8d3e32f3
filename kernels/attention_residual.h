// Attention Residuals (arXiv 2603.15031; the delta form arXiv 2605.18855): what a sublayer reads of all sums before it.
//
//   V_0 … V_{K-1} the sources, of a token: the embedding and the sums of the finished blocks; P the open block's sum
//   l_j = (w ⊙ g)·V_j / rms(V_j), rms(V) = sqrt(mean(V²) + ε)      a reader has w and g, both [d]
//   replacing   h = Σ_j α_j·V_j + α_P·P        α = softmax(l_0, …, l_{K-1}, l_P)
//   adding      h = Σ_j (1 + β_j)·V_j + P      β = softmax(l_0, …, l_{K-1}): the stream Σ_j V_j + P, and the sources
//   no w        h = Σ_j V_j + P
// w does not depend on activations, so one pass over the sources (ReadSources) serves Q readers: all sublayers that
// follow before the block is finished. Each then adds its open sum (ReadOpen): the two parts of one softmax, merged by
// their largest logits and their sums, as an online softmax merges them. Backward, each reader's open part comes first
// (ReadOpenBackward), then one pass for the sources of all (ReadSourcesBackward). Derivation: attention_residual.md.
// Shapes: R packed rows of d; V_j in rows [j·R, (j + 1)·R) of x; of reader q the rows [q·R, (q + 1)·R) of y, logits and
// statistics.
// Storage: fp32, also on a device. (=): written; (+=): added to.
// Memory traffic, in rows of d, with K sources and Q readers: ReadSources K + Q, backward 3K + Q; ReadOpen 3, backward
// 6 (adding: 4). Within the passes over sources, a row's values are read again from the cache.
// Numerics: fp32. Sums along a row in lanes, as in cpu/columns-inl.h; over sources ascending. dx: readers descending,
// one fp32 addition after the other, so that the gradient of a source has the same bits however its readers are divided
// into calls. The gradients of w and g: fp32 over the rows of a block of kReaderRowBlock and over the sources,
// ascending, then in double over the blocks, ascending. A row's results depend on no other row; the number of threads
// and Q change no bit of a reader's results. With one source and no P, h = V_0 exactly.
// REQUIRES: matching shapes (aborts with both values otherwise); contiguous rows; K ≥ 1; 1 ≤ Q ≤ kMostReaders.
// Blocking on the CPU, asynchronous on a device; allocates nothing.
#pragma once

#include <span>

#include "runtime/tensor.h"

namespace hadal {

class Stream;

inline constexpr int64_t kReaderRowBlock = 32;
inline constexpr int64_t kMostReaders = 16;  // of a call

struct SourceReader {
  ConstVector query, scale;  // w and g [d], or both empty
  Vector d_query, d_scale;   // [d] (+=), in backward; empty without w
};

// Numbers of a row of a reader.
enum ReaderStatistic : int64_t {
  kSourcesLargest,     // the largest l_j
  kSourcesSum,         // Σ_j e^(l_j − largest)
  kOpenInverseRms,     // 1/rms(P)
  kOpenLogit,          // l_P
  kOpenWeight,         // α_P; without P 0
  kOpenLogitGradient,  // of l_P, from ReadOpenBackward; without P 0
  kReaderStatistics
};

struct ReadSourcesForwardArgs {
  ConstMatrix x;                          // [K·R, d]
  std::span<const SourceReader> readers;  // [Q]
  bool adds = false;                      // the adding form
  float epsilon = 0;                      // ε
  Vector inverse_rms;                     // [K·R] (=)
  Matrix logits;                          // [Q·R, K] (=); not written without w
  Matrix statistics;                      // [Q·R, kReaderStatistics] (=): the first two, the others become 0
  Matrix y;                               // [Q·R, d] (=): h without P, as if the softmax had only the sources
};
void ReadSourcesForward(const Stream& stream, const ReadSourcesForwardArgs& args);

struct ReadOpenForwardArgs {
  ConstMatrix open;     // P [R, d]
  SourceReader reader;  // if it has no w: as with `adds`
  bool adds = false;
  float epsilon = 0;
  Matrix statistics;  // [R, kReaderStatistics]: the reader's; (=) those of P, not if it adds
  Matrix y;           // [R, d]: the reader's; becomes h
};
void ReadOpenForward(const Stream& stream, const ReadOpenForwardArgs& args);

struct ReadOpenBackwardArgs {
  ConstMatrix dh;    // [R, d]
  ConstMatrix open;  // P of the forward
  SourceReader reader;
  bool adds = false;
  Matrix statistics;  // the forward's; (=) kOpenLogitGradient
  Matrix h;           // [R, d]: the forward's y; becomes dh, for ReadSourcesBackward
  Matrix d_open;      // [R, d] (+=)
  Vector partials;    // scratch, ReaderPartials(R, d, 1) floats
};
void ReadOpenBackward(const Stream& stream, const ReadOpenBackwardArgs& args);

struct ReadSourcesBackwardArgs {
  ConstMatrix dh;  // [Q·R, d]
  ConstMatrix x;
  std::span<const SourceReader> readers;
  bool adds = false;
  ConstVector inverse_rms;
  ConstMatrix logits, statistics;
  Matrix d_logits;  // scratch [Q·R, K]
  Matrix dx;        // [K·R, d] (+=)
  Vector partials;  // scratch, ReaderPartials(R, d, Q) floats
};
void ReadSourcesBackward(const Stream& stream, const ReadSourcesBackwardArgs& args);

constexpr int64_t ReaderPartials(int64_t rows, int64_t width, int64_t readers) {
  return (rows + kReaderRowBlock - 1) / kReaderRowBlock * width * readers;
}

}  // namespace hadal
