#include "layers/second_stream.h"

#include "kernels/residual_norm.h"
#include "runtime/check.h"

namespace hadal {

SecondStreamEnd::SecondStreamEnd(const ModelPlan& plan, int32_t last, int64_t rows)
    : norm_(plan, last, ParameterRole::kClosingNormScale), rows_(rows) {
  HADAL_CHECK(plan.HasSecondStream(plan.sublayers[last].stack));
  HADAL_CHECK(norm_.present());
}

void SecondStreamEnd::Close(const Stream& stream, const ParameterStore& parameters, const CloseArgs& args) const {
  norm_.Forward(stream, parameters, args.second, args.normed, args.statistics);
  ResidualNormForward(stream, {.residual = args.x, .branch = args.normed, .sum = args.y});
}

void SecondStreamEnd::Forward(const SublayerContext& context, const PartTensors& tensors) const {
  Close(context.stream, context.parameters,
        {.x = tensors.x,
         .second = tensors.second,
         .normed = context.workspace.branch(tensors.y.rows),
         .statistics = reinterpret_cast<float*>(tensors.saved),
         .y = tensors.y});
}

void SecondStreamEnd::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  norm_.Backward(context, tensors.second, reinterpret_cast<float*>(tensors.saved), tensors.d_y, tensors.d_second);
}

}  // namespace hadal
