#include "pipeline/tied_tables.h"

#include <algorithm>

#include "kernels/add.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Above the channels' numbers, below the collectives' tags.
constexpr int kGradientTag = 30000;
constexpr int kWeightTag = 30001;

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

TiedTables::TiedTables(const ModelPlan& plan, const PipelinePlan& pipeline, int rank, const Stream& stream,
                       ArenaLayout& layout)
    : rank_(rank) {
  int64_t largest_owned = 0, largest_moved = 0;
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    if (plan.parameters[p].role != ParameterRole::kEmbedding) continue;
    Table table{.parameter = p};
    for (const int32_t sublayer : plan.Uses(p)) table.uses.push_back({sublayer, pipeline.RankOfSublayer(sublayer)});
    if (table.uses.size() < 2) continue;
    const int64_t elements = plan.parameters[p].elements();
    const auto is_mine = [rank](const Use& use) { return use.rank == rank; };
    if (table.uses[0].rank == rank) largest_owned = std::max(largest_owned, elements);
    if (std::any_of(table.uses.begin(), table.uses.end(), is_mine)) largest_moved = std::max(largest_moved, elements);
    tables_.push_back(std::move(table));
  }
  buffer_.size = std::min(largest_owned, kSliceElements);
  buffer_slice_ = layout.Reserve<float>("workspace", buffer_.size);
  through_host_ = stream.kind() != DeviceKind::kCpu && !pipeline.device_transfers;
  if (!through_host_) return;
  host_buffer_.size = std::min(largest_moved, kSliceElements);
  host_slice_ = layout.ReserveHostBytes("workspace", host_buffer_.size * int64_t{sizeof(float)});
}

void TiedTables::Bind(const Arena& arena, Communicator& communicator) {
  buffer_.data = arena.Get<float>(buffer_slice_);
  host_buffer_.data = arena.Get<float>(host_slice_);
  communicator_ = &communicator;
}

absl::Status TiedTables::SendSlices(const Stream& stream, Vector values, int peer, int tag, absl::Duration timeout) {
  return ForSlices(values, [&](Vector slice) -> absl::Status {
    const int64_t bytes = slice.size * int64_t{sizeof(float)};
    float* const at = through_host_ ? host_buffer_.data : slice.data;
    if (through_host_) stream.ToHost(at, slice.data, bytes);
    HADAL_ASSIGN_OR_RETURN(CommRequest request, communicator_->Send(at, bytes, peer, tag));
    return communicator_->Wait(request, absl::Now() + timeout, "a shared embedding");
  });
}

absl::Status TiedTables::ReceiveSlices(const Stream& stream, Vector values, int peer, int tag, absl::Duration timeout) {
  return ForSlices(values, [&](Vector slice) -> absl::Status {
    const int64_t bytes = slice.size * int64_t{sizeof(float)};
    float* const at = through_host_ ? host_buffer_.data : slice.data;
    HADAL_ASSIGN_OR_RETURN(CommRequest request, communicator_->Receive(at, bytes, peer, tag));
    HADAL_RETURN_IF_ERROR(communicator_->Wait(request, absl::Now() + timeout, "a shared embedding"));
    if (through_host_) stream.FromHost(slice.data, at, bytes);
    return absl::OkStatus();
  });
}

absl::Status TiedTables::AddReceived(const Stream& stream, Vector sum, const Use& use, absl::Duration timeout) {
  return ForSlices(sum, [&](Vector slice) -> absl::Status {
    const Vector piece(buffer_.data, slice.size);
    HADAL_RETURN_IF_ERROR(ReceiveSlices(stream, piece, use.rank, kGradientTag, timeout));
    Add(stream, {.sum = slice, .values = piece});
    return absl::OkStatus();
  });
}

absl::Status TiedTables::ReduceGradients(const Stream& stream, const ParameterStore& parameters,
                                         absl::Duration timeout) {
  for (const Table& table : tables_) {
    const int owner = table.uses[0].rank;
    for (size_t i = 1; i < table.uses.size(); ++i) {
      const Use& use = table.uses[i];
      if (rank_ == owner) {
        const Vector sum = FlatOf(parameters.TableGradient(table.uses[0].sublayer));
        if (use.rank == owner) {
          Add(stream, {.sum = sum, .values = FlatOf(parameters.TableGradient(use.sublayer))});
        } else {
          HADAL_RETURN_IF_ERROR(AddReceived(stream, sum, use, timeout));
        }
      } else if (rank_ == use.rank) {
        HADAL_RETURN_IF_ERROR(
            SendSlices(stream, FlatOf(parameters.TableGradient(use.sublayer)), owner, kGradientTag, timeout));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TiedTables::ShareWeights(const Stream& stream, const ParameterStore& parameters, absl::Duration timeout) {
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
      HADAL_RETURN_IF_ERROR(rank_ == owner ? SendSlices(stream, weight, reader, kWeightTag, timeout)
                                           : ReceiveSlices(stream, weight, owner, kWeightTag, timeout));
      if (rank_ == reader) parameters.Round(stream, weight);
    }
  }
  return absl::OkStatus();
}

}  // namespace hadal
