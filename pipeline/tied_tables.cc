#include "pipeline/tied_tables.h"

#include <algorithm>

#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Above the channels' numbers, below the collectives' tags.
constexpr int kGradientTag = 30000;
constexpr int kWeightTag = 30001;

void AddTo(Vector sum, ConstVector values) {
  for (int64_t i = 0; i < sum.size; ++i) sum[i] += values[i];
}

Vector FlatOf(Matrix m) { return {m.data, m.rows * m.columns}; }

// Calls body(slice of `values`) for each slice in order.
template <typename Body>
absl::Status ForSlices(Vector values, Body&& body) {
  for (int64_t first = 0; first < values.size; first += kSliceElements) {
    const Vector slice(values.data + first, std::min(kSliceElements, values.size - first));
    HADAL_RETURN_IF_ERROR(body(slice));
  }
  return absl::OkStatus();
}

}  // namespace

TiedTables::TiedTables(const ModelPlan& plan, const PipelinePlan& pipeline, int rank, ArenaLayout& layout)
    : rank_(rank) {
  int64_t largest = 0;
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    if (plan.parameters[p].role != ParameterRole::kEmbedding) continue;
    Table table{.parameter = p};
    for (const int32_t sublayer : plan.Uses(p)) table.uses.push_back({sublayer, pipeline.RankOfSublayer(sublayer)});
    if (table.uses.size() < 2) continue;
    if (table.uses[0].rank == rank) largest = std::max(largest, plan.parameters[p].elements());
    tables_.push_back(std::move(table));
  }
  buffer_.size = std::min(largest, kSliceElements);
  buffer_slice_ = layout.Reserve<float>("workspace", buffer_.size);
}

void TiedTables::Bind(const Arena& arena, Communicator& communicator) {
  buffer_.data = arena.Get<float>(buffer_slice_);
  communicator_ = &communicator;
}

absl::Status TiedTables::SendSlices(Vector values, int peer, int tag, absl::Duration timeout) {
  return ForSlices(values, [&](Vector slice) -> absl::Status {
    HADAL_ASSIGN_OR_RETURN(CommRequest request, communicator_->Send(slice.data, slice.size * sizeof(float), peer, tag));
    return communicator_->Wait(request, absl::Now() + timeout, "a shared embedding");
  });
}

absl::Status TiedTables::ReceiveSlices(Vector values, int peer, int tag, absl::Duration timeout) {
  return ForSlices(values, [&](Vector slice) -> absl::Status {
    HADAL_ASSIGN_OR_RETURN(CommRequest request,
                           communicator_->Receive(slice.data, slice.size * sizeof(float), peer, tag));
    return communicator_->Wait(request, absl::Now() + timeout, "a shared embedding");
  });
}

absl::Status TiedTables::AddReceived(Vector sum, const Use& use, absl::Duration timeout) {
  return ForSlices(sum, [&](Vector slice) -> absl::Status {
    const Vector piece(buffer_.data, slice.size);
    HADAL_RETURN_IF_ERROR(ReceiveSlices(piece, use.rank, kGradientTag, timeout));
    AddTo(slice, piece);
    return absl::OkStatus();
  });
}

absl::Status TiedTables::ReduceGradients(const ParameterStore& parameters, absl::Duration timeout) {
  for (const Table& table : tables_) {
    const int owner = table.uses[0].rank;
    for (size_t i = 1; i < table.uses.size(); ++i) {
      const Use& use = table.uses[i];
      if (rank_ == owner) {
        const Vector sum = FlatOf(parameters.TableGradient(table.uses[0].sublayer));
        if (use.rank == owner) {
          AddTo(sum, FlatOf(parameters.TableGradient(use.sublayer)));
        } else {
          HADAL_RETURN_IF_ERROR(AddReceived(sum, use, timeout));
        }
      } else if (rank_ == use.rank) {
        HADAL_RETURN_IF_ERROR(SendSlices(FlatOf(parameters.TableGradient(use.sublayer)), owner, kGradientTag, timeout));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TiedTables::ShareWeights(const ParameterStore& parameters, absl::Duration timeout) {
  for (const Table& table : tables_) {
    const int owner = table.uses[0].rank;
    std::vector<int> readers;
    for (const Use& use : table.uses) readers.push_back(use.rank);
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    for (const int reader : readers) {
      if (reader == owner) continue;
      if (rank_ != owner && rank_ != reader) continue;
      const Vector weight = parameters.WeightVector(table.parameter);
      HADAL_RETURN_IF_ERROR(rank_ == owner ? SendSlices(weight, reader, kWeightTag, timeout)
                                           : ReceiveSlices(weight, owner, kWeightTag, timeout));
    }
  }
  return absl::OkStatus();
}

}  // namespace hadal
