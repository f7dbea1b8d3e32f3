// Schedules that keep weight halves back for time that would be idle. A weight half sends nothing, so no rank waits for
// it. It may run when its rank has nothing else to do: at a step's end, while the gradients of the last micro-batches
// are still on their way from the ranks below.
//
// zb_h1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 3): 1F1B, and rank r runs the
// weight half of micro-batch k right after the input half of k + r. S = 2, M = 3, equal forwards and halves (I, W), the
// first stage's backward whole:
//
//   rank 0  F0 F1 .  B0 -- F2 B1 -- B2 --
//   rank 1  .  F0 I0 F1 I1 W0 F2 I2 W1 W2
//
// Idle time of a rank, for one micro-batch's forward F, input half I and weight half W: (S-1)·(F + I - W), where 1F1B
// has (S-1)·(F + I + W). Memory: as on 1F1B's first rank, min(M, S) live micro-batches; r + 1 pending weight halves.
//
// interleaved_zb (ours): the same over v chunks a rank. A rank that still alternates forwards and backwards when its
// weight halves begin to wait may keep 2r back: its warm-up is 2r visits shorter than the first rank's, so this takes
// the first rank's number of live visits. With few micro-batches only the way back idles, and r is enough. Never more
// than the weight halves of two micro-batches of the stage, 2v, are pending.
#include <algorithm>
#include <cstdint>

#include "pipeline/schedule/schedule_builder.h"
#include "pipeline/schedule/schedule_kinds.h"

namespace hadal {

OptionalHalves HalvesOfZbH1(const ScheduleShape& /*shape*/, int rank) { return Halves{.lag = rank}; }

OptionalHalves HalvesOfInterleavedZb(const ScheduleShape& shape, int rank) {
  if (shape.chunks == 1) return HalvesOfZbH1(shape, rank);
  const int64_t alternating = PaddedOrderSize(shape) - WarmUpVisits(shape, rank);
  const int64_t wanted = std::min(int64_t{2} * rank, std::max(int64_t{rank}, alternating));
  return Halves{.lag = std::min(wanted, int64_t{2} * shape.chunks - 1)};
}

}  // namespace hadal
