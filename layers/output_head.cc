#include "layers/output_head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"

namespace hadal {

OutputHead::OutputHead(const ModelPlan& plan)
    : sublayer_(plan.output_head()),
      table_(plan.sublayers[sublayer_].table),
      label_smoothing_(plan.options.label_smoothing) {}

LossSums OutputHead::Forward(const SublayerContext& context, ConstAnyMatrix x, AnyMatrix d_x, Vector row_nll) const {
  LossSums sums;
  const ConstAnyMatrix table = context.parameters.ProductWeight(table_);
  for (int64_t first = 0; first < x.rows; first += Workspace::kLogitRows) {
    const int64_t rows = std::min(Workspace::kLogitRows, x.rows - first);
    const ConstAnyMatrix block = x.Rows(first, rows);
    const AnyMatrix logits = context.workspace.logits(rows);
    const Vector loss(context.workspace.row_loss(x.rows).data + first, rows);
    const Vector nll(context.workspace.row_nll(x.rows).data + first, rows);
    LinearForward(context.stream, {.x = block, .weight = table, .y = logits});
    CrossEntropy(context.stream, {.logits = logits,
                                  .targets = {context.batch.target.data() + first, rows},
                                  .label_smoothing = static_cast<float>(label_smoothing_),
                                  .gradient_scale = context.scalars.training ? context.scalars.gradient_scale : 0,
                                  .loss = loss,
                                  .nll = nll});
    if (!context.scalars.training) continue;
    LinearBackwardInput(context.stream, {.dy = logits, .weight = table, .dx = d_x.Rows(first, rows)});
    LinearBackwardWeight(context.stream,
                         {.dy = logits, .x = block, .d_weight = context.parameters.TableGradient(sublayer_)});
  }
  const Vector rows = context.workspace.host_rows(x.rows);  // loss, then nll
  context.stream.ToHost(rows.data, context.workspace.row_loss(x.rows).data, rows.size * int64_t{sizeof(float)});
  for (int64_t i = 0; i < x.rows; ++i) {
    sums.loss += rows[i];
    sums.nll += rows[x.rows + i];
    if (!row_nll.empty()) row_nll[i] = rows[x.rows + i];
  }
  sums.tokens = x.rows;
  return sums;
}

}  // namespace hadal
