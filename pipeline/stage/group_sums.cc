#include "pipeline/stage/group_sums.h"

#include <algorithm>
#include <utility>

#include "kernels/add.h"
#include "runtime/storage.h"

namespace hadal {
namespace {

// accumulator += each of `kept`, in order; then, if `keep` is not null, keep = accumulator and accumulator = 0.
void AddKept(const Stream& stream, Vector accumulator, std::span<const float* const> kept, float* keep) {
  const int64_t bytes = accumulator.size * int64_t{sizeof(float)};
  if (stream.device() != nullptr) {
    for (const float* values : kept) Add(stream, {.sum = accumulator, .values = {values, accumulator.size}});
    if (keep == nullptr) return;
    stream.Copy(keep, accumulator.data, bytes);
    return stream.Clear(accumulator.data, bytes);
  }
  constexpr int64_t kGrain = 4096, kRange = 1024;  // a range stays in the first-level cache
  stream.ForRanges(accumulator.size, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kRange) {
      const int64_t count = std::min(kRange, end - first);
      float* const sum = accumulator.data + first;
      for (const float* values : kept) {
        for (int64_t i = 0; i < count; ++i) sum[i] += values[first + i];
      }
      if (keep == nullptr) continue;
      std::copy_n(sum, count, keep + first);
      std::fill_n(sum, count, 0.0f);
    }
  });
}

}  // namespace

GroupSums::GroupSums(const PipelineLayout& pipeline, const ParameterStore& parameters, Purpose purpose,
                     ArenaLayout& layout)
    : parameters_(parameters), ends_(pipeline.group_ends()) {
  if (purpose == Purpose::kInference) return;
  for (const GroupEnd& end : ends_) places_ = std::max<int64_t>(places_, end.keep + 1);
  const int64_t more = std::ssize(ends_) - 1 - places_;
  slice_ =
      layout.Reserve<float>("group sums", places_ * parameters.AllGradients().size + more * parameters.tied_floats());
}

void GroupSums::EndMicroBatch(const Stream& stream, int micro_batch, int32_t first, int32_t last) const {
  for (size_t group = 0; group + 1 < ends_.size(); ++group) {
    if (ends_[group].micro_batch == micro_batch) End(stream, group, first, last);
  }
}

void GroupSums::Complete(const Stream& stream, int32_t first) {
  if (ends_.size() > 1 && first < complete_) End(stream, ends_.size() - 1, first, complete_);
  complete_ = first;
}

void GroupSums::End(const Stream& stream, size_t group, int32_t first, int32_t last) const {
  using Range = ParameterStore::GradientRange;
  const GroupEnd& end = ends_[group];
  const Vector gradients = parameters_.AllGradients();
  const auto add = [&](int64_t begin, int64_t elements) {
    const auto place = [&](int p) { return sums_ + p * gradients.size + begin; };
    std::vector<const float*> kept;
    for (const int p : end.kept) kept.push_back(place(p));
    AddKept(stream, {gradients.data + begin, elements}, kept, end.keep < 0 ? nullptr : place(end.keep));
  };
  for (const Storage storage : {Storage::kBFloat16, Storage::kFloat32}) {
    const std::vector<Range>& ranges = parameters_.gradient_ranges(storage);
    int64_t begin = 0, behind = 0;  // of neighbours, which are added together
    for (auto range = std::ranges::lower_bound(ranges, first, {}, &Range::sublayer);
         range != ranges.end() && range->sublayer < last; ++range) {
      if (range->tied_offset >= 0) {
        float* const keep = Kept(group, *range);
        if (keep != nullptr) AddKept(stream, {gradients.data + range->begin, range->elements}, {}, keep);
        continue;
      }
      if (range->begin > AlignedSublayer(behind)) add(std::exchange(begin, range->begin), behind - begin);
      behind = range->begin + range->elements;
    }
    add(begin, behind - begin);
  }
}

float* GroupSums::Kept(size_t group, const ParameterStore::GradientRange& range) const {
  const int64_t gradients = parameters_.AllGradients().size, kept = static_cast<int64_t>(group);
  if (group + 1 == ends_.size()) return nullptr;
  if (kept < places_) return sums_ + kept * gradients + range.begin;
  return sums_ + places_ * gradients + (kept - places_) * parameters_.tied_floats() + range.tied_offset;
}

std::vector<Vector> GroupSums::OfTable(int32_t sublayer, int32_t parameter) const {
  const ParameterStore::GradientRange& range = parameters_.TableRange(sublayer, parameter);
  std::vector<Vector> gradients;
  for (size_t group = 0; group + 1 < ends_.size(); ++group) gradients.emplace_back(Kept(group, range), range.elements);
  gradients.emplace_back(parameters_.AllGradients().data + range.begin, range.elements);
  return gradients;
}

}  // namespace hadal
