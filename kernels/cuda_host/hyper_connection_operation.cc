#include "kernels/cuda/hyper_connection.h"
#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"
#include "kernels/hyper_connection.h"

namespace hadal::cuda {

static_assert(cuda::kMostResiduals == hadal::kMostResiduals && cuda::kHyperGates == hadal::kHyperGates);
static_assert(cuda::kHyperRowBlock == hadal::kHyperRowBlock, "HyperPartials counts its blocks");

void operation::HyperReadForward(const Stream& stream, const hadal::HyperReadForwardArgs& args) {
  cuda::HyperReadForward(DeviceOf(stream).handle(), {.rows = args.u.rows,
                                                     .width = args.u.columns,
                                                     .residuals = args.x.columns / args.u.columns,
                                                     .x = ViewOf(args.x),
                                                     .projected = ViewOf(args.projected),
                                                     .gates = args.gates.data,
                                                     .bias = args.bias.data,
                                                     .maps = ViewOf(args.maps),
                                                     .rstd = args.rstd.data,
                                                     .u = ViewOf(args.u)});
}

void operation::HyperWriteForward(const Stream& stream, const hadal::HyperWriteForwardArgs& args) {
  cuda::HyperWriteForward(DeviceOf(stream).handle(), {.rows = args.f.rows,
                                                      .width = args.f.columns,
                                                      .residuals = args.x.columns / args.f.columns,
                                                      .x = ViewOf(args.x),
                                                      .maps = ViewOf(args.maps),
                                                      .f = ViewOf(args.f),
                                                      .y = ViewOf(args.y)});
}

void operation::HyperWriteBackward(const Stream& stream, const hadal::HyperWriteBackwardArgs& args) {
  cuda::HyperWriteBackward(DeviceOf(stream).handle(), {.rows = args.f.rows,
                                                       .width = args.f.columns,
                                                       .residuals = args.x.columns / args.f.columns,
                                                       .dy = ViewOf(args.dy),
                                                       .x = ViewOf(args.x),
                                                       .maps = ViewOf(args.maps),
                                                       .f = ViewOf(args.f),
                                                       .dx = ViewOf(args.dx),
                                                       .df = ViewOf(args.df),
                                                       .d_maps = ViewOf(args.d_maps)});
}

void operation::HyperReadBackward(const Stream& stream, const hadal::HyperReadBackwardArgs& args) {
  cuda::HyperReadBackward(DeviceOf(stream).handle(), {.rows = args.du.rows,
                                                      .width = args.du.columns,
                                                      .residuals = args.x.columns / args.du.columns,
                                                      .du = ViewOf(args.du),
                                                      .x = ViewOf(args.x),
                                                      .projected = ViewOf(args.projected),
                                                      .maps = ViewOf(args.maps),
                                                      .rstd = args.rstd.data,
                                                      .gates = args.gates.data,
                                                      .bias = args.bias.data,
                                                      .d_maps = ViewOf(args.d_maps),
                                                      .dx = ViewOf(args.dx),
                                                      .d_gates = args.d_gates.data,
                                                      .d_bias = args.d_bias.data,
                                                      .partials = args.partials.data});
}

void operation::CopyToResiduals(const Stream& stream, const hadal::CopyToResidualsArgs& args) {
  cuda::CopyToResiduals(DeviceOf(stream).handle(), {.rows = args.x.rows,
                                                    .width = args.x.columns,
                                                    .residuals = args.y.columns / args.x.columns,
                                                    .gain = args.gain,
                                                    .x = ViewOf(args.x),
                                                    .y = ViewOf(args.y)});
}

void operation::SumResiduals(const Stream& stream, const hadal::SumResidualsArgs& args) {
  cuda::SumResiduals(DeviceOf(stream).handle(), {.rows = args.y.rows,
                                                 .width = args.y.columns,
                                                 .residuals = args.x.columns / args.y.columns,
                                                 .gain = args.gain,
                                                 .x = ViewOf(args.x),
                                                 .y = ViewOf(args.y)});
}

}  // namespace hadal::cuda
