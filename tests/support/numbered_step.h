// A step's metrics with distinct values, to detect a sink or a reader that confuses two of them.
#pragma once

#include "runtime/metrics_sink.h"

namespace hadal {

inline StepMetrics NumberedStep() {
  return {.step = 1,
          .update = 2,
          .total_steps = 3,
          .loss = 4,
          .nll = 5,
          .perplexity = 6,
          .learning_rate = 7,
          .gradient_norm = 8,
          .target_tokens = 9,
          .tokens_per_second = 10,
          .step_seconds = 11,
          .elapsed_seconds = 12,
          .epoch = 13,
          .stages = {{.forward_seconds = 14,
                      .recompute_seconds = 15,
                      .backward_seconds = 16,
                      .wait_seconds = 17,
                      .communication_seconds = 18,
                      .optimizer_seconds = 19,
                      .checkpoint_seconds = 20,
                      .core_wait_seconds = 21}},
          .memory = {{.arena_bytes = 22, .held_bytes = 23, .peak_resident_bytes = 24}},
          .measured_bubble = 25,
          .analytic_bubble = 26};
}

}  // namespace hadal
