#include "pipeline/exchange/tied_tables.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/add.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

Matrix RowOf(Vector v) { return {v.data, 1, v.size}; }

// A piece has the bytes of a slice of floats, the last one fewer.
constexpr int64_t kPieceBytes = kSliceElements * int64_t{sizeof(float)};

VectorOf<std::byte> PieceOf(const AnyMatrix& values, int64_t i) {
  const int64_t first = i * kPieceBytes;
  return {static_cast<std::byte*>(values.data) + first, std::min(kPieceBytes, values.bytes() - first)};
}

// Calls post(i) and finish(i) for each piece of `values` in order, each post before the finish of the piece before.
template <typename Post, typename Finish>
absl::Status ForPieces(const AnyMatrix& values, Post&& post, Finish&& finish) {
  const int64_t pieces = (values.bytes() + kPieceBytes - 1) / kPieceBytes;
  for (int64_t i = 0; i <= pieces; ++i) {
    if (i < pieces) HADAL_RETURN_IF_ERROR(post(i));
    if (i > 0) HADAL_RETURN_IF_ERROR(finish(i - 1));
  }
  return absl::OkStatus();
}

// The place in a buffer of kUnderWay pieces that piece i takes.
float* PlaceOf(Vector buffer, int64_t i) { return buffer.data + i % TiedTables::kUnderWay * kSliceElements; }

}  // namespace

TiedTables::TiedTables(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, const Stream& stream,
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
  buffer_.size = std::min(largest_owned, kUnderWay * kSliceElements);
  buffer_slice_ = layout.Reserve<float>("workspace", buffer_.size);
  through_host_ = stream.kind() != DeviceKind::kCpu && !pipeline.device_transfers;
  if (!through_host_) return;
  host_buffer_.size = std::min(largest_moved, kUnderWay * kSliceElements);
  host_slice_ = layout.ReserveHostBytes("workspace", host_buffer_.size * int64_t{sizeof(float)});
}

void TiedTables::Bind(const Arena& arena, Communicator& communicator) {
  buffer_.data = arena.Get<float>(buffer_slice_);
  host_buffer_.data = arena.Get<float>(host_slice_);
  communicator_ = &communicator;
}

absl::Status TiedTables::SendPieces(const Stream& stream, const Passage& passage, absl::Duration timeout) {
  std::array<CommRequest, kUnderWay> requests;
  const auto post = [&](int64_t i) -> absl::Status {
    const VectorOf<std::byte> piece = PieceOf(passage.values, i);
    void* const at = through_host_ ? PlaceOf(host_buffer_, i) : static_cast<void*>(piece.data);
    if (through_host_) stream.ToHost(at, piece.data, piece.size);
    HADAL_ASSIGN_OR_RETURN(requests[i % kUnderWay], communicator_->Send(at, piece.size, passage.peer, passage.tag));
    return absl::OkStatus();
  };
  return ForPieces(passage.values, post, [&](int64_t i) {
    return communicator_->Wait(requests[i % kUnderWay], absl::Now() + timeout, "a shared embedding");
  });
}

absl::Status TiedTables::ReceivePieces(const Stream& stream, const Passage& passage, bool adds,
                                       absl::Duration timeout) {
  std::array<CommRequest, kUnderWay> requests;
  const auto place = [&](int64_t i) {  // where kernels read it
    return adds ? static_cast<void*>(PlaceOf(buffer_, i)) : PieceOf(passage.values, i).data;
  };
  const auto post = [&](int64_t i) -> absl::Status {
    void* const at = through_host_ ? PlaceOf(host_buffer_, i) : place(i);
    const int64_t bytes = PieceOf(passage.values, i).size;
    HADAL_ASSIGN_OR_RETURN(requests[i % kUnderWay], communicator_->Receive(at, bytes, passage.peer, passage.tag));
    return absl::OkStatus();
  };
  return ForPieces(passage.values, post, [&](int64_t i) -> absl::Status {
    HADAL_RETURN_IF_ERROR(communicator_->Wait(requests[i % kUnderWay], absl::Now() + timeout, "a shared embedding"));
    const VectorOf<std::byte> piece = PieceOf(passage.values, i);
    if (through_host_) stream.FromHost(place(i), PlaceOf(host_buffer_, i), piece.size);
    if (!adds) return absl::OkStatus();
    const int64_t elements = piece.size / int64_t{sizeof(float)};
    Add(stream, {.sum = {static_cast<float*>(passage.values.data) + i * kSliceElements, elements},
                 .values = {PlaceOf(buffer_, i), elements}});
    return absl::OkStatus();
  });
}

absl::Status TiedTables::ReduceGradients(const Stream& stream, const GroupSums& groups, absl::Duration timeout) {
  for (const Table& table : tables_) {
    const int owner = table.uses[0].rank;
    const auto of_use = [&](const Use& use) {  // [groups]
      return use.rank == rank_ ? groups.OfTable(use.sublayer, table.parameter) : std::vector<Vector>();
    };
    const std::vector<Vector> sums = of_use(table.uses[0]);
    for (size_t i = 1; i < table.uses.size(); ++i) {
      const Use& use = table.uses[i];
      if (rank_ != owner && rank_ != use.rank) continue;
      const std::vector<Vector> gradients = of_use(use);
      for (size_t g = 0; g < groups.ends().size(); ++g) {
        if (use.rank == owner) {
          Add(stream, {.sum = sums[g], .values = gradients[g]});
        } else if (rank_ == owner) {
          HADAL_RETURN_IF_ERROR(
              ReceivePieces(stream, {RowOf(sums[g]), use.rank, kTiedGradientTag}, /*adds=*/true, timeout));
        } else {
          HADAL_RETURN_IF_ERROR(SendPieces(stream, {RowOf(gradients[g]), owner, kTiedGradientTag}, timeout));
        }
      }
    }
    std::vector<Vector> kept(sums.empty() ? 0 : sums.size() - 1);
    for (size_t g = 0; g < sums.size(); ++g) {
      const GroupEnd& end = groups.ends()[g];
      for (const int place : end.kept) Add(stream, {.sum = sums[g], .values = kept[place]});
      if (end.keep >= 0) kept[end.keep] = sums[g];
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
      HADAL_RETURN_IF_ERROR(rank_ == owner
                                ? SendPieces(stream, {weight, reader, kTiedWeightTag}, timeout)
                                : ReceivePieces(stream, {weight, owner, kTiedWeightTag}, /*adds=*/false, timeout));
    }
  }
  return absl::OkStatus();
}

}  // namespace hadal
