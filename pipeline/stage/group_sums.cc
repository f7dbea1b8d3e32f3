#include "pipeline/stage/group_sums.h"

#include <algorithm>
#include <utility>

#include "kernels/add.h"
#include "runtime/storage.h"

namespace hadal {

GroupSums::GroupSums(const PipelineLayout& pipeline, const ParameterStore& parameters, Purpose purpose,
                     ArenaLayout& layout)
    : parameters_(parameters), ends_(pipeline.group_ends()) {
  if (purpose == Purpose::kInference) return;
  for (const GroupEnd& end : ends_) places_ = std::max<int64_t>(places_, end.keep + 1);
  const int64_t more = std::ssize(ends_) - 1 - places_;
  slice_ =
      layout.Reserve<float>("group sums", places_ * parameters.AllGradients().size + more * parameters.tied_floats());
}

void GroupSums::Complete(const Stream& stream, int32_t first) {
  first = std::min(first, complete_);  // a part also reports the sublayer behind it, whose groups have ended
  End(stream, ends_.back().micro_batch, first, std::exchange(complete_, first));
}

void GroupSums::End(const Stream& stream, int micro_batch, int32_t first, int32_t last) const {
  using Range = ParameterStore::GradientRange;
  const auto found = std::ranges::find(ends_, micro_batch, &GroupEnd::micro_batch);
  if (found == ends_.end() || ends_.size() == 1) return;
  const GroupEnd& end = *found;
  const Vector gradients = parameters_.AllGradients();
  const auto move = [&](int64_t begin, int64_t elements, float* to) {
    const int64_t bytes = elements * int64_t{sizeof(float)};
    stream.Copy(to, gradients.data + begin, bytes);
    stream.Clear(gradients.data + begin, bytes);
  };
  const auto add = [&](int64_t begin, int64_t elements) {
    const auto place = [&](int p) { return sums_ + p * gradients.size + begin; };
    for (const int p : end.kept) Add(stream, {{gradients.data + begin, elements}, {place(p), elements}});
    if (end.keep >= 0) move(begin, elements, place(end.keep));
  };
  for (const Storage storage : {Storage::kBFloat16, Storage::kFloat32}) {
    const std::vector<Range>& ranges = parameters_.gradient_ranges(storage);
    int64_t begin = 0, behind = 0;  // of neighbours, which are added together
    for (auto range = std::ranges::lower_bound(ranges, first, {}, &Range::sublayer);
         range != ranges.end() && range->sublayer < last; ++range) {
      if (range->tied_offset >= 0) {
        if (end.keep >= 0) move(range->begin, range->elements, Kept(found - ends_.begin(), *range));
        continue;
      }
      if (range->begin > AlignedSublayer(behind)) {
        add(begin, behind - begin);
        begin = range->begin;
      }
      behind = range->begin + range->elements;
    }
    add(begin, behind - begin);
  }
}

float* GroupSums::Kept(int64_t group, const ParameterStore::GradientRange& range) const {
  const int64_t gradients = parameters_.AllGradients().size;
  if (group < places_) return sums_ + group * gradients + range.begin;
  return sums_ + places_ * gradients + (group - places_) * parameters_.tied_floats() + range.tied_offset;
}

std::vector<Vector> GroupSums::OfTable(int32_t sublayer, int32_t parameter) const {
  const ParameterStore::GradientRange& range = parameters_.TableRange(sublayer, parameter);
  std::vector<Vector> gradients;
  for (int64_t group = 0; group + 1 < std::ssize(ends_); ++group)
    gradients.emplace_back(Kept(group, range), range.elements);
  gradients.emplace_back(parameters_.AllGradients().data + range.begin, range.elements);
  return gradients;
}

}  // namespace hadal
