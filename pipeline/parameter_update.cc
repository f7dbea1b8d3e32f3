#include "pipeline/parameter_update.h"

#include "kernels/adam.h"

namespace hadal {
namespace {

struct Run {
  Vector parameter, gradient, first_moment, second_moment;

  // Takes `next` in where it begins just behind this run; false: it does not.
  bool Join(const Run& next) {
    const int64_t n = parameter.size;
    const bool follows = next.parameter.data == parameter.data + n && next.gradient.data == gradient.data + n &&
                         next.first_moment.data == first_moment.data + n &&
                         next.second_moment.data == second_moment.data + n;
    if (!follows) return false;
    for (Vector* v : {&parameter, &gradient, &first_moment, &second_moment}) v->size += next.parameter.size;
    return true;
  }
};

void Apply(const Stream& stream, const Run& run, const ParameterUpdate& update) {
  const OptimizerOptions& options = update.optimizer;
  const bool clips = options.clip_norm > 0 && update.gradient_norm > options.clip_norm;
  AdamStep(stream, {.parameter = run.parameter,
                    .gradient = run.gradient,
                    .first_moment = run.first_moment,
                    .second_moment = run.second_moment,
                    .learning_rate = update.learning_rate,
                    .beta1 = options.beta1,
                    .beta2 = options.beta2,
                    .epsilon = options.epsilon,
                    .weight_decay = options.weight_decay,
                    .gradient_scale = clips ? options.clip_norm / update.gradient_norm : 1.0,
                    .update = update.update});
}

}  // namespace

void UpdateParameters(const Stream& stream, const StageState& state, const ParameterUpdate& update) {
  Run run;
  for (const StateSlice& slice : state.updated()) {
    const Run next{slice.weight, slice.gradient, slice.first_moment, slice.second_moment};
    if (!run.parameter.empty() && run.Join(next)) continue;
    if (!run.parameter.empty()) Apply(stream, run, update);
    run = next;
  }
  if (!run.parameter.empty()) Apply(stream, run, update);
}

}  // namespace hadal
