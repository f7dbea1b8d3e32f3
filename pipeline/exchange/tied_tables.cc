#include "pipeline/exchange/tied_tables.h"

#include <algorithm>

#include "kernels/add.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

Vector FlatOf(Matrix m) { return {m.data, m.rows * m.columns}; }

// Calls body(piece of `values`) for each piece of at most `most` in order.
template <typename T, typename Body>
absl::Status ForPieces(VectorOf<T> values, int64_t most, Body&& body) {
  for (int64_t first = 0; first < values.size; first += most) {
    HADAL_RETURN_IF_ERROR(body(VectorOf<T>(values.data + first, std::min(most, values.size - first))));
  }
  return absl::OkStatus();
}

// The same for its bytes, as much at once as a slice of floats takes.
template <typename Body>
absl::Status ForBytes(AnyMatrix values, Body&& body) {
  return ForPieces(VectorOf<std::byte>(static_cast<std::byte*>(values.data), values.bytes()),
                   kSliceElements * int64_t{sizeof(float)}, body);
}

}  // namespace

TiedTables::TiedTables(const ModelPlan& plan, const PipelinePlan& pipeline, int rank, const Stream& stream,
                       ArenaLayout& layout)
    : rank_(rank) {
  int64_t largest_owned = 0, largest_moved = 0;
  for (int32_t p = 0; p < static_cast<int32_t>(plan.parameters.size()); ++p) {
    if (!plan.parameters[p].is_table()) continue;
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

absl::Status TiedTables::SendPieces(const Stream& stream, AnyMatrix values, int peer, int tag, absl::Duration timeout) {
  return ForBytes(values, [&](VectorOf<std::byte> piece) -> absl::Status {
    void* const at = through_host_ ? static_cast<void*>(host_buffer_.data) : piece.data;
    if (through_host_) stream.ToHost(at, piece.data, piece.size);
    HADAL_ASSIGN_OR_RETURN(CommRequest request, communicator_->Send(at, piece.size, peer, tag));
    return communicator_->Wait(request, absl::Now() + timeout, "a shared embedding");
  });
}

absl::Status TiedTables::ReceivePieces(const Stream& stream, AnyMatrix values, int peer, int tag,
                                       absl::Duration timeout) {
  return ForBytes(values, [&](VectorOf<std::byte> piece) -> absl::Status {
    void* const at = through_host_ ? static_cast<void*>(host_buffer_.data) : piece.data;
    HADAL_ASSIGN_OR_RETURN(CommRequest request, communicator_->Receive(at, piece.size, peer, tag));
    HADAL_RETURN_IF_ERROR(communicator_->Wait(request, absl::Now() + timeout, "a shared embedding"));
    if (through_host_) stream.FromHost(piece.data, at, piece.size);
    return absl::OkStatus();
  });
}

absl::Status TiedTables::AddReceived(const Stream& stream, Vector sum, const Use& use, absl::Duration timeout) {
  return ForPieces(sum, kSliceElements, [&](Vector slice) -> absl::Status {
    const Vector piece(buffer_.data, slice.size);
    HADAL_RETURN_IF_ERROR(
        ReceivePieces(stream, Matrix(piece.data, 1, piece.size), use.rank, kTiedGradientTag, timeout));
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
        const Vector sum = FlatOf(parameters.TableGradient(table.uses[0].sublayer, table.parameter));
        if (use.rank == owner) {
          Add(stream, {.sum = sum, .values = FlatOf(parameters.TableGradient(use.sublayer, table.parameter))});
        } else {
          HADAL_RETURN_IF_ERROR(AddReceived(stream, sum, use, timeout));
        }
      } else if (rank_ == use.rank) {
        HADAL_RETURN_IF_ERROR(SendPieces(stream, parameters.TableGradient(use.sublayer, table.parameter), owner,
                                         kTiedGradientTag, timeout));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TiedTables::DistributeWeights(const Stream& stream, const ParameterStore& parameters,
                                           absl::Duration timeout) {
  for (const Table& table : tables_) {
    const int owner = table.uses[0].rank;
    std::vector<int> readers;
    for (const Use& use : table.uses) readers.push_back(use.rank);
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    for (const int reader : readers) {
      if (reader == owner) continue;
      if (rank_ != owner && rank_ != reader) continue;
      const AnyMatrix weight = parameters.AsRead(table.parameter);
      HADAL_RETURN_IF_ERROR(rank_ == owner ? SendPieces(stream, weight, reader, kTiedWeightTag, timeout)
                                           : ReceivePieces(stream, weight, owner, kTiedWeightTag, timeout));
    }
  }
  return absl::OkStatus();
}

}  // namespace hadal
