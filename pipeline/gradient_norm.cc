#include "pipeline/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/sum_of_squares.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr size_t kHeadValues = 4;  // loss, nll, tokens, stop vote: in front of every rank's slice sums

}  // namespace

Vector OwnedGradient(const ParameterStore& parameters, int32_t parameter) {
  const ParameterRecord& record = parameters.plan().parameters[parameter];
  if (record.role != ParameterRole::kEmbedding) return parameters.GradientVector(parameter);
  const Matrix table = parameters.TableGradient(record.sublayer);
  return {table.data, table.rows * table.columns};
}

GradientNorm::GradientNorm(const ModelPlan& plan, const PipelinePlan& pipeline, int rank) : plan_(plan), rank_(rank) {
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    owner_.push_back(pipeline.OwnerOf(plan, p));
  }
}

void GradientNorm::ListSlices(const ParameterStore& parameters) {
  int64_t elements = 0;
  for (const int32_t p : parameters.owned()) {
    const Vector gradient = OwnedGradient(parameters, p);
    for (int64_t first = 0; first < gradient.size; first += kSliceElements) {
      const ConstVector slice(gradient.data + first, std::min(kSliceElements, gradient.size - first));
      slices_.push_back({slice, elements});
      elements += slice.size;
    }
  }
  mine_.resize(kHeadValues + slices_.size());
}

// Elements are shared out evenly; a slice is summed by the thread whose share holds its first element.
void GradientNorm::SumSlices(const Stream& stream) {
  if (slices_.empty()) return;
  constexpr int64_t kGrain = 4096;
  const auto before = [](const OwnSlice& slice, int64_t element) { return slice.first < element; };
  stream.ForRanges(slices_.back().first + 1, kGrain, [&](int64_t begin, int64_t end) {
    for (auto s = std::lower_bound(slices_.begin(), slices_.end(), begin, before); s != slices_.end() && s->first < end;
         ++s) {
      mine_[kHeadValues + (s - slices_.begin())] = SumOfSquares(s->gradient);
    }
  });
}

absl::StatusOr<GlobalGradient> GradientNorm::Compute(const Stream& stream, const ParameterStore& parameters,
                                                     const LossSums& loss, StopVote vote, Collectives& collectives) {
  if (mine_.empty()) ListSlices(parameters);
  mine_[0] = loss.loss;
  mine_[1] = loss.nll;
  mine_[2] = static_cast<double>(loss.tokens);
  mine_[3] = static_cast<double>(vote);
  SumSlices(stream);
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives.AllGather(mine_, "gradient norms"));

  GlobalGradient result;
  for (const std::vector<double>& values : all) {
    result.loss.Add({values[0], values[1], static_cast<int64_t>(values[2])});
    result.stop = std::max(result.stop, static_cast<StopVote>(static_cast<int32_t>(values[3])));
  }
  std::vector<size_t> next(all.size(), kHeadValues);
  std::vector<double> squares(plan_.sublayers.size(), 0.0);
  double total = 0;
  for (size_t p = 0; p < owner_.size(); ++p) {
    for (int64_t slice = 0; slice < SliceCount(plan_.parameters[p]); ++slice) {
      const double square = all[owner_[p]][next[owner_[p]]++];
      total += square;
      squares[plan_.parameters[p].sublayer] += square;
      if (!std::isfinite(square) && result.first_bad_parameter < 0)
        result.first_bad_parameter = static_cast<int32_t>(p);
    }
  }
  result.norm = std::sqrt(total);
  result.finite = result.first_bad_parameter < 0 && std::isfinite(result.loss.loss);
  for (const double square : squares) result.sublayer_norms.push_back(static_cast<float>(std::sqrt(square)));
  return result;
}

}  // namespace hadal
