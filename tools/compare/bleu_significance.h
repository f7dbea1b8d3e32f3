// Tests whether two systems' BLEU differs by more than the choice of test sentences explains: the paired bootstrap
// (Koehn 2004), as a two-sided test.
//
//   Δ    = BLEU(a) − BLEU(b) on the whole test set
//   Δ_i  = the same on the i-th resample: as many segments, drawn with replacement, the same ones for both systems
//   p    = (1 + #{ i : |Δ_i − mean Δ_i| ≥ |Δ| }) / (1 + n)
// The spread of the resamples around their mean approximates that of two systems that do not differ. Random numbers are
// counted (runtime/random.h), so the same files give the same p everywhere.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/data/bleu.h"

namespace hadal {

// Returns a system's counts for each segment.  REQUIRES: as many hypotheses as references.
std::vector<BleuCounts> CountSegments(absl::Span<const std::string> hypotheses,
                                      absl::Span<const std::string> references);

struct BootstrapOptions {
  int resamples = 1000;
  uint64_t seed = 12345;
};

// The p-value of the difference between two systems on the same segments; 1 if there are none.
// REQUIRES: a and b have equally many segments.
double PairedBootstrapPValue(absl::Span<const BleuCounts> a, absl::Span<const BleuCounts> b,
                             const BootstrapOptions& options = {});

}  // namespace hadal
