#include "layers/block_reader.h"

#include <algorithm>
#include <span>

#include "kernels/convert.h"
#include "runtime/check.h"

namespace hadal {

BlockReader::BlockReader(const ModelPlan& plan, Stack stack, int64_t sources)
    : sources_(sources),
      d_model_(plan.options.d_model),
      adds_((stack == Stack::kEncoder ? plan.options.encoder : plan.options.decoder).attention_residual_delta),
      epsilon_(plan.norm_form().epsilon) {
  HADAL_CHECK(plan.ReadsBlocks(stack));
}

BlockReader::BlockReader(const ModelPlan& plan, int32_t first, int32_t last)
    : BlockReader(plan, plan.sublayers[first].stack, plan.HistoryBefore(first)) {
  HADAL_CHECK_LE(plan.OpenSublayers(first) + last - first, plan.BlockSublayers(plan.sublayers[first].stack));
  for (int32_t s = first; s < last; ++s) queries_.push_back(plan.ParameterOf(s, ParameterRole::kReaderQuery));
}

BlockReader BlockReader::Behind(const ModelPlan& plan, int32_t last) {
  BlockReader reader(plan, plan.sublayers[last].stack, plan.HistoryBefore(last + 1));
  reader.queries_.push_back(plan.ParameterOf(last, ParameterRole::kClosingReaderQuery));
  return reader;
}

BlockReader::Saved BlockReader::At(std::byte* memory, int64_t rows) const {
  Saved s;
  SavedTensors tensors(memory);
  s.read = tensors.TakeFloats(readers() * rows, d_model_);
  s.logits = tensors.TakeFloats(readers() * rows, sources_);
  s.d_logits = tensors.TakeFloats(readers() * rows, sources_);
  s.statistics = tensors.TakeFloats(readers() * rows, kReaderStatistics);
  s.inverse_rms = {tensors.TakeFloats(1, sources_ * rows).data, sources_ * rows};
  s.bytes = tensors.bytes();
  return s;
}

SourceReader BlockReader::ReaderOf(const ParameterStore& parameters, int64_t reader, bool gradients) const {
  const int32_t query = queries_[reader];
  if (query < 0) return {};
  SourceReader r{.query = parameters.WeightVector(query), .scale = parameters.WeightVector(query + 1)};
  if (!gradients) return r;
  r.d_query = parameters.GradientVector(query);
  r.d_scale = parameters.GradientVector(query + 1);
  return r;
}

template <typename Call>
void BlockReader::InGroups(const ParameterStore& parameters, int64_t rows, bool gradients, const Call& call) const {
  for (int64_t last = readers(); last > 0;) {
    const int64_t first = std::max(int64_t{0}, last - kMostReaders);
    SourceReader group[kMostReaders];
    for (int64_t q = first; q < last; ++q) group[q - first] = ReaderOf(parameters, q, gradients);
    call(std::span<const SourceReader>(group, last - first), first * rows, (last - first) * rows);
    last = first;
  }
}

void BlockReader::ReadSources(const Stream& stream, const ParameterStore& parameters, ConstMatrix history,
                              const Saved& saved) const {
  const auto read = [&](std::span<const SourceReader> readers, int64_t first, int64_t count) {
    ReadSourcesForward(stream, {.x = history,
                                .readers = readers,
                                .adds = adds_,
                                .epsilon = epsilon_,
                                .inverse_rms = saved.inverse_rms,
                                .logits = saved.logits.Rows(first, count),
                                .statistics = saved.statistics.Rows(first, count),
                                .y = saved.read.Rows(first, count)});
  };
  InGroups(parameters, saved.read.rows / readers(), /*gradients=*/false, read);
}

void BlockReader::ReadOpen(const Stream& stream, const ParameterStore& parameters, int64_t reader, ConstMatrix open,
                           const Saved& saved) const {
  if (open.empty()) return;
  ReadOpenForward(stream, {.open = open,
                           .reader = ReaderOf(parameters, reader, /*gradients=*/false),
                           .adds = adds_,
                           .epsilon = epsilon_,
                           .statistics = saved.statistics.Rows(reader * open.rows, open.rows),
                           .y = saved.ReadOf(reader, open.rows)});
}

void BlockReader::ReadOpenBackward(const SublayerContext& context, int64_t reader, ConstMatrix open, ConstMatrix dh,
                                   Matrix d_open, const Saved& saved) const {
  const Matrix read = saved.ReadOf(reader, dh.rows);
  if (open.empty()) {
    context.stream.Copy(read.data, dh.data, dh.rows * dh.columns * int64_t{sizeof(float)});
    return;
  }
  hadal::ReadOpenBackward(context.stream, {.dh = dh,
                                           .open = open,
                                           .reader = ReaderOf(context.parameters, reader, /*gradients=*/true),
                                           .adds = adds_,
                                           .statistics = saved.statistics.Rows(reader * dh.rows, dh.rows),
                                           .h = read,
                                           .d_open = d_open,
                                           .partials = context.workspace.norm_partials()});
}

void BlockReader::ReadSourcesBackward(const SublayerContext& context, ConstMatrix history, Matrix d_history,
                                      const Saved& saved) const {
  const auto read = [&](std::span<const SourceReader> readers, int64_t first, int64_t count) {
    hadal::ReadSourcesBackward(context.stream, {.dh = saved.read.Rows(first, count),
                                                .x = history,
                                                .readers = readers,
                                                .adds = adds_,
                                                .inverse_rms = saved.inverse_rms,
                                                .logits = saved.logits.Rows(first, count),
                                                .statistics = saved.statistics.Rows(first, count),
                                                .d_logits = saved.d_logits.Rows(first, count),
                                                .dx = d_history,
                                                .partials = context.workspace.norm_partials()});
  };
  InGroups(context.parameters, saved.read.rows / readers(), /*gradients=*/true, read);
}

BlockReadingEnd::BlockReadingEnd(const ModelPlan& plan, int32_t last, int64_t rows)
    : reader_(BlockReader::Behind(plan, last)), norm_(plan, last, ParameterRole::kClosingNormScale), rows_(rows) {
  HADAL_CHECK(norm_.present());
}

BlockReadingEnd::Saved BlockReadingEnd::Views(std::byte* saved, int64_t rows) const {
  SavedTensors tensors(saved);
  Saved s{.read = reader_.At(saved, rows)};
  tensors.TakeBytes(s.read.bytes);
  s.statistics = tensors.TakeFloats(rows, 2).data;
  s.bytes = tensors.bytes();
  return s;
}

void BlockReadingEnd::Read(const Stream& stream, const ParameterStore& parameters, ConstMatrix history,
                           std::byte* saved, AnyMatrix y) const {
  const Saved s = Views(saved, y.rows);
  reader_.ReadSources(stream, parameters, history, s.read);
  norm_.Forward(stream, parameters, s.read.read, y, s.statistics);
}

void BlockReadingEnd::BackwardInput(const SublayerContext& context, const PartTensors& tensors, int32_t) const {
  const int64_t rows = tensors.d_y.rows;
  const Saved s = Views(tensors.saved, rows);
  AnyMatrix d_normed = tensors.d_y;
  if (const Storage storage = context.plan().compute_storage; d_normed.storage != storage) {
    d_normed = context.workspace.branch_input_gradient(rows);
    Convert(context.stream, {.from = tensors.d_y, .to = d_normed});
  }
  const Matrix d_read = context.workspace.layer_input_gradient(rows);
  norm_.Backward(context, s.read.read, s.statistics, d_normed, d_read);
  reader_.ReadOpenBackward(context, 0, /*open=*/{}, d_read, /*d_open=*/{}, s.read);
  reader_.ReadSourcesBackward(context, tensors.x.floats(), tensors.d_x.floats(), s.read);
}

}  // namespace hadal
