#include "layers/incremental_sublayer.h"

#include <algorithm>

#include "kernels/activation.h"
#include "kernels/cached_attention.h"
#include "kernels/convert.h"
#include "kernels/head_norm.h"
#include "kernels/residual_norm.h"
#include "kernels/scatter_rows.h"
#include "kernels/shift_scale.h"

namespace hadal {

IncrementalScratch::IncrementalScratch(const ModelPlan& plan, const Capacity& capacity, const Stream& stream,
                                       ArenaLayout& layout)
    : storage_(plan.compute_storage),
      residual_storage_(plan.residual_storage(Stack::kDecoder)),
      rows_(capacity.rows),
      width_(plan.options.d_model),
      residual_count_(plan.Residuals(Stack::kDecoder)),
      hyper_logits_(HyperLogits(plan.options.decoder.residual_mixing, residual_count_)),
      attention_floats_(CachedAttentionScratch(stream, capacity.longest, plan.options.head_width())) {
  const int64_t rows = capacity.rows;
  const int64_t query_width = plan.options.query_width(), key_width = plan.options.key_width();
  const auto reserve = [&](int64_t elements, Storage storage) {
    return layout.ReserveBytes("decode workspace", elements * BytesOf(storage));
  };
  const auto reserve_floats = [&](int64_t floats) { return reserve(floats, Storage::kFloat32); };
  inner_ = reserve(std::max(rows * std::max((plan.options.block.attention_gate ? 2 : 1) * query_width + 2 * key_width,
                                            (plan.options.feed_forward_products() - 1) * int64_t{plan.options.d_ff}),
                            capacity.encoder_rows * 2 * key_width),
                   storage_);
  if (!plan.options.fuses_activation()) hidden_ = reserve(rows * plan.options.d_ff, storage_);
  attended_ = reserve(rows * std::max(width_, query_width), storage_);
  branch_ = reserve(rows * width_, storage_);
  normed_ = reserve(rows * std::max(width_, query_width), storage_);
  if (residual_storage_ != storage_) sum_ = reserve(rows * width_, residual_storage_);
  if (plan.options.decoder.skip_gain != 0) layer_input_ = reserve(rows * width_, residual_storage_);
  if (plan.options.decoder.ffn_inner_norm || plan.options.decoder.fixup_scalars)
    normed_hidden_ = reserve(rows * plan.options.d_ff, storage_);
  if (residual_count_ > 1) {
    residuals_ = reserve_floats(rows * residual_count_ * width_);
    read_ = reserve_floats(rows * width_);
    maps_ = reserve_floats(rows * (hyper_logits_ + HyperMaps(residual_count_)));
  }
  statistics_ = reserve_floats(2 * rows);
  attention_ = reserve_floats(attention_floats_);
}

void IncrementalScratch::Bind(const Arena& arena) {
  hadal::Bind(arena, inner_, attended_, branch_, normed_, normed_hidden_, hidden_, sum_, layer_input_);
  hadal::Bind(arena, statistics_, attention_, residuals_, read_, maps_);
}

IncrementalSublayer::IncrementalSublayer(const ModelPlan& plan, int32_t sublayer)
    : sublayer_(sublayer),
      record_(plan.sublayers[sublayer]),
      kind_(record_.kind),
      storage_(plan.compute_storage),
      residual_storage_(plan.residual_storage(Stack::kDecoder)),
      out_storage_(plan.segment_storage(Stack::kDecoder, sublayer + 1)),
      d_model_(plan.options.d_model),
      d_ff_(plan.options.d_ff),
      query_width_(plan.options.query_width()),
      key_width_(plan.options.key_width()),
      heads_(plan.options.heads),
      group_(plan.options.heads / plan.options.kv_heads()),
      keeps_input_(kind_ == SublayerKind::kSelfAttention && plan.options.decoder.skip_gain != 0),
      begins_stack_(plan.begins_stack(sublayer)),
      ends_stack_(plan.ends_stack(sublayer + 1)),
      reads_blocks_(plan.ReadsBlocks(Stack::kDecoder)),
      residuals_(plan.Residuals(Stack::kDecoder)),
      mixing_(plan.options.decoder.residual_mixing),
      head_norms_(plan, sublayer),
      reach_(plan.Reach(sublayer)),
      gate_width_(plan.ParameterOf(sublayer, ParameterRole::kGateWeight) < 0 ? 0 : query_width_) {
  HADAL_CHECK(record_.stack == Stack::kDecoder);
  const auto find = [&](ParameterRole role) { return plan.ParameterOf(sublayer, role); };
  const bool feed_forward = kind_ == SublayerKind::kFeedForward;
  input_weight_ = find(feed_forward ? ParameterRole::kHiddenWeight : ParameterRole::kQueryWeight);
  input_bias_ = find(feed_forward ? ParameterRole::kHiddenBias : ParameterRole::kQueryBias);
  key_value_weight_ = find(ParameterRole::kKeyWeight);
  key_value_bias_ = find(ParameterRole::kKeyBias);
  output_weight_ = find(feed_forward ? ParameterRole::kContractionWeight : ParameterRole::kOutputWeight);
  output_bias_ = find(feed_forward ? ParameterRole::kContractionBias : ParameterRole::kOutputBias);
  norm_scale_ = find(ParameterRole::kNormScale);
  if (record_.norm == NormPlacement::kPre) norm_behind_ = plan.NormBehind(sublayer);
  head_scale_ = find(ParameterRole::kHeadScale);
  inner_norm_scale_ = find(feed_forward ? ParameterRole::kHiddenNormScale : ParameterRole::kInnerNormScale);
  input_norm_scale_ = find(ParameterRole::kInputNormScale);
  output_norm_scale_ = find(ParameterRole::kOutputNormScale);
  omega_ = find(ParameterRole::kOmega);
  hyper_weight_ = find(ParameterRole::kHyperMapWeight);
  input_shift_ = find(feed_forward ? ParameterRole::kInputShift : ParameterRole::kQueryShift);
  hidden_shift_ = find(ParameterRole::kHiddenShift);
  contraction_shift_ = find(ParameterRole::kContractionShift);
  closing_shift_ = find(ParameterRole::kClosingShift);
  closing_scale_ = find(ParameterRole::kClosingScale);
  HADAL_CHECK_GE(std::min(input_weight_, output_weight_), 0);
}

void IncrementalSublayer::CacheEncoderOutput(const Stream& stream, const ParameterStore& parameters,
                                             const IncrementalScratch& scratch, ConstAnyMatrix encoder_output,
                                             const CacheRows& rows, AnyMatrix cache) const {
  HADAL_CHECK(kind_ == SublayerKind::kCrossAttention);
  const AnyMatrix key_value = scratch.inner(encoder_output.rows, 2 * key_width_);
  LinearForward(stream, {.x = encoder_output,
                         .weight = parameters.ProductWeight(key_value_weight_, 2),
                         .bias = parameters.ProductBias(key_value_bias_, 2),
                         .y = key_value});
  head_norms_.NormKeys(stream, parameters, key_value.Columns(0, key_width_));
  ScatterRows(stream, {.x = key_value, .index = rows.rows, .device_index = rows.device_rows, .y = cache});
}

void IncrementalSublayer::Attend(const IncrementalContext& context, ConstAnyMatrix q, ConstAnyMatrix cache,
                                 const CacheIndex& index, ConstAnyMatrix gate, AnyMatrix y) const {
  const AnyMatrix attended = context.scratch.attended(q.rows, query_width_);
  const bool turns = kind_ == SublayerKind::kSelfAttention;
  CachedAttention(context.stream, {.q = q,
                                   .cache = cache,
                                   .index = index.indices,
                                   .index_stride = index.stride,
                                   .lengths = index.lengths,
                                   .device_index = index.device_indices,
                                   .device_lengths = index.device_lengths,
                                   .heads = heads_,
                                   .group = group_,
                                   .rotary = turns ? context.rotary.Of(reach_) : Rotary(),
                                   .reach = reach_,
                                   .output = attended,
                                   .scratch = context.scratch.attention()});
  if (!gate.empty()) GluForward(context.stream, {.value = attended, .gate = gate, .y = attended});
  if (head_scale_ >= 0) {
    HeadScaleForward(context.stream,
                     {.x = attended, .gain = context.parameters.WeightVector(head_scale_), .y = attended});
  }
  // The sublayer's input has been read, so the inner norm may reuse the place of the norm before the branch.
  const AnyMatrix normed = context.scratch.normed(q.rows, query_width_);
  if (inner_norm_scale_ >= 0) Norm(context, inner_norm_scale_, attended, normed);
  LinearForwardArgs product{.x = inner_norm_scale_ >= 0 ? normed : attended,
                            .weight = context.parameters.ProductWeight(output_weight_),
                            .y = y};
  Project(context, product,
          inner_norm_scale_ >= 0 ? context.scratch.attended(q.rows, d_model_) : context.scratch.normed(q.rows));
}

void IncrementalSublayer::Project(const IncrementalContext& context, LinearForwardArgs product, AnyMatrix free) const {
  if (output_norm_scale_ < 0) return LinearForward(context.stream, product);
  const AnyMatrix y = product.y;
  product.bias = context.parameters.ProductBias(output_bias_);
  product.y = free;
  LinearForward(context.stream, product);
  Norm(context, output_norm_scale_, free, y);
}

void IncrementalSublayer::SelfAttention(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix cache,
                                        AnyMatrix y) const {
  const AnyMatrix qkv = context.scratch.inner(x.rows, query_width_ + 2 * key_width_ + gate_width_);
  const int32_t products = gate_width_ > 0 ? 4 : 3;
  LinearForward(context.stream, {.x = x,
                                 .weight = context.parameters.ProductWeight(input_weight_, products),
                                 .bias = context.parameters.ProductBias(input_bias_, products),
                                 .y = qkv});
  head_norms_.NormQueries(context.stream, context.parameters, qkv.Columns(0, query_width_));
  head_norms_.NormKeys(context.stream, context.parameters, qkv.Columns(query_width_, key_width_));
  const CacheRows& to = context.rows.cache_rows;
  ScatterRows(context.stream, {.x = qkv.Columns(query_width_, 2 * key_width_),
                               .index = to.rows,
                               .device_index = to.device_rows,
                               .y = cache,
                               .rotary = context.rotary.Of(reach_),
                               .turned_columns = key_width_,
                               .head_width = query_width_ / heads_,
                               .positions = context.rows.positions,
                               .device_positions = context.rows.device_tokens.positions});
  const ConstAnyMatrix gate = gate_width_ > 0 ? qkv.Columns(query_width_ + 2 * key_width_, gate_width_) : AnyMatrix();
  Attend(context, qkv.Columns(0, query_width_), cache, context.rows.self, gate, y);
}

void IncrementalSublayer::CrossAttention(const IncrementalContext& context, ConstAnyMatrix x, ConstAnyMatrix cache,
                                         AnyMatrix y) const {
  const AnyMatrix query = context.scratch.inner(x.rows, query_width_);
  LinearForward(context.stream, {.x = x,
                                 .weight = context.parameters.ProductWeight(input_weight_),
                                 .bias = context.parameters.ProductBias(input_bias_),
                                 .y = query});
  head_norms_.NormQueries(context.stream, context.parameters, query);
  Attend(context, query, cache, context.rows.encoder_output, {}, y);
}

void IncrementalSublayer::FeedForward(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix y) const {
  const ModelOptions& model = context.parameters.plan().options;
  const int32_t products = model.block.gated ? 2 : 1;
  const AnyMatrix z = context.scratch.inner(x.rows, products * d_ff_);
  const AnyMatrix hidden = model.fuses_activation() ? z : context.scratch.hidden(x.rows, d_ff_);
  LinearForwardArgs expansion{.x = x,
                              .weight = context.parameters.ProductWeight(input_weight_, products),
                              .bias = context.parameters.ProductBias(input_bias_, products),
                              .relu = model.fuses_activation(),
                              .y = z};
  if (hidden_shift_ >= 0) {
    expansion.bias = MakeHiddenBias(context.stream, context.parameters, input_bias_, hidden_shift_,
                                    context.scratch.normed_hidden(1, d_ff_));
  }
  LinearForward(context.stream, expansion);
  if (!model.fuses_activation()) {
    ActivationForward(context.stream,
                      {.activation = model.block.activation, .gated = model.block.gated, .z = z, .y = hidden});
  }
  Shift(context, contraction_shift_, hidden, hidden);
  ConstAnyMatrix read = hidden;
  if (inner_norm_scale_ >= 0) {
    const AnyMatrix normed = context.scratch.normed_hidden(x.rows, d_ff_);
    Norm(context, inner_norm_scale_, hidden, normed);
    read = normed;
  }
  Project(context, {.x = read, .weight = context.parameters.ProductWeight(output_weight_), .y = y},
          context.scratch.normed(x.rows));
}

void IncrementalSublayer::Norm(const IncrementalContext& context, int32_t norm_scale, ConstAnyMatrix x,
                               AnyMatrix normed, float norm_gain) const {
  PlainNorm(norm_scale, norm_gain).Forward(context.stream, context.parameters, x, normed, context.scratch.statistics());
}

void IncrementalSublayer::Shift(const IncrementalContext& context, int32_t shift, ConstAnyMatrix x, AnyMatrix y) const {
  if (shift < 0) return;
  ShiftScaleForward(context.stream, {.x = x, .shift = context.parameters.WeightVector(shift), .y = y});
}

ConstAnyMatrix IncrementalSublayer::BranchInput(const IncrementalContext& context, ConstAnyMatrix x) const {
  ConstAnyMatrix read = x;
  const AnyMatrix input = context.scratch.normed(x.rows);
  if (record_.norm == NormPlacement::kPre) {
    Norm(context, norm_scale_, x, input, record_.norm_gain);
    read = input;
  } else if (x.storage != storage_) {
    Convert(context.stream, {.from = x, .to = input});
    read = input;
  }
  if (input_norm_scale_ >= 0) {
    // The branch has not been computed yet, so its place is free for a norm of the norm.
    const AnyMatrix normed = read.data == input.data ? context.scratch.attended(x.rows, d_model_) : input;
    Norm(context, input_norm_scale_, read, normed);
    read = normed;
  }
  if (input_shift_ < 0) return read;
  Shift(context, input_shift_, read, input);
  return input;
}

const float* IncrementalSublayer::DeviceBranchGain(const IncrementalContext& context) const {
  if (context.branch_gains == nullptr || !HasBranchGain(record_)) return nullptr;
  return context.branch_gains + (sublayer_ - context.first_sublayer);
}

void IncrementalSublayer::Residual(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix branch, AnyMatrix out,
                                   Matrix second) const {
  const int32_t norm = record_.norm == NormPlacement::kPost ? norm_scale_ : norm_behind_;
  const bool sum_is_output = norm < 0 && out.storage == residual_storage_;
  ResidualNormForwardArgs args{.residual = x,
                               .branch = branch,
                               .residual_gain = record_.residual_gain,
                               .branch_gain = BranchGain(record_, context.update),
                               .learned_residual_gain = context.parameters.WeightVector(omega_),
                               .sum = sum_is_output ? out : context.scratch.sum(x.rows)};
  args.second_gain = record_.second_gain;
  args.second_sum = second;
  if (!begins_stack_) args.second = second;
  args.device_branch_gain = DeviceBranchGain(context);
  if (output_norm_scale_ < 0) args.bias = context.parameters.WeightVector(output_bias_);
  if (record_.skip_gain != 0) {
    args.skip = context.scratch.layer_input(x.rows);
    args.skip_gain = record_.skip_gain;
  }
  if (record_.learned_gain >= 0) args.learned_branch_gain = context.parameters.WeightVector(record_.learned_gain);
  if (norm >= 0) {
    args.scale = context.parameters.WeightVector(norm);
    args.shift = context.parameters.WeightVector(context.parameters.plan().NormShift(norm));
    args.form = context.parameters.plan().norm_form();
    // The norm's kernel writes what products read. The place of the sublayer's normed input is free by now.
    args.normed = out.storage == storage_ ? out : context.scratch.normed(x.rows);
    args.mean = context.scratch.mean(x.rows);
    args.rstd = context.scratch.rstd(x.rows);
  }
  ResidualNormForward(context.stream, args);
  if (norm < 0) return Close(context, args.sum, out);
  if (out.storage != storage_) Convert(context.stream, {.from = args.normed, .to = out});
}

void IncrementalSublayer::Close(const IncrementalContext& context, ConstAnyMatrix sum, AnyMatrix out) const {
  if (closing_shift_ >= 0) {
    ShiftScaleForward(context.stream, {.x = sum,
                                       .shift = context.parameters.WeightVector(closing_shift_),
                                       .scale = context.parameters.WeightVector(closing_scale_),
                                       .y = out});
  } else if (out.storage != sum.storage) {
    Convert(context.stream, {.from = sum, .to = out});
  }
}

void IncrementalSublayer::Step(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix cache, AnyMatrix out,
                               Matrix second) const {
  if (hyper_weight_ >= 0) return HyperStep(context, x, cache, out);
  if (reads_blocks_) {
    const AnyMatrix branch = Branch(context, BranchInput(context, x), cache);
    if (second.empty()) return AddBranch(context, x, 0, branch, out);
    return AddBranch(context, second, 1, branch, out);
  }
  if (keeps_input_) {
    context.stream.Copy(context.scratch.layer_input(x.rows).data, x.data, x.bytes());
  }
  Residual(context, x, Branch(context, BranchInput(context, x), cache), out, second);
}

AnyMatrix IncrementalSublayer::Branch(const IncrementalContext& context, ConstAnyMatrix input, AnyMatrix cache) const {
  const AnyMatrix branch = context.scratch.branch(input.rows);
  switch (kind_) {
    case SublayerKind::kSelfAttention:
      SelfAttention(context, input, cache, branch);
      break;
    case SublayerKind::kCrossAttention:
      CrossAttention(context, input, cache, branch);
      break;
    default:
      FeedForward(context, input, branch);
  }
  return branch;
}

void IncrementalSublayer::AddBranch(const IncrementalContext& context, ConstAnyMatrix x, float residual_gain,
                                    AnyMatrix branch, AnyMatrix out) const {
  ResidualNormForwardArgs args{.residual = x, .branch = branch, .residual_gain = residual_gain, .sum = out};
  if (output_norm_scale_ < 0) args.bias = context.parameters.WeightVector(output_bias_);
  args.branch_gain = BranchGain(record_, context.update);
  args.device_branch_gain = DeviceBranchGain(context);
  ResidualNormForward(context.stream, args);
}

void IncrementalSublayer::HyperStep(const IncrementalContext& context, ConstAnyMatrix x, AnyMatrix cache,
                                    AnyMatrix out) const {
  const int64_t rows = context.rows.rows(), columns = residuals_ * d_model_;
  const ParameterStore& parameters = context.parameters;
  const IncrementalScratch& scratch = context.scratch;
  ConstMatrix residuals(x.floats().data, rows, columns);
  if (begins_stack_) {
    CopyToResiduals(context.stream, {.x = x.floats(), .y = scratch.residuals(rows)});
    residuals = scratch.residuals(rows);
  }
  const Matrix projected = scratch.projected_maps(rows), maps = scratch.maps(rows), read = scratch.read(rows);
  LinearForward(context.stream, {.x = residuals, .weight = parameters.ProductWeight(hyper_weight_), .y = projected});
  HyperReadForward(context.stream, {.x = residuals,
                                    .mixing = mixing_,
                                    .projected = projected,
                                    .gates = parameters.WeightVector(hyper_weight_ + 1),
                                    .bias = parameters.WeightVector(hyper_weight_ + 2),
                                    .maps = maps,
                                    .rstd = scratch.rstd(rows),
                                    .u = read});
  const AnyMatrix branch = Branch(context, BranchInput(context, read), cache);
  const Matrix result = scratch.sum(rows).floats();
  AddBranch(context, read, 0, branch, result);
  const Matrix y = ends_stack_ ? scratch.residuals(rows) : Matrix(out.floats().data, rows, columns);
  HyperWriteForward(context.stream, {.x = residuals, .maps = maps, .f = result, .y = y});
  if (!ends_stack_) return;
  SumResiduals(context.stream, {.x = y, .gain = 1.0f / static_cast<float>(residuals_), .y = read});
  Norm(context, norm_behind_, read, out);
}

}  // namespace hadal
