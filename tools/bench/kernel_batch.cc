#include "tools/bench/kernel_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/device_kernels.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Rows of each sentence; they sum to `options.tokens`.
std::vector<int32_t> SentenceLengths(const BenchBatchOptions& options, int32_t micro_batch) {
  std::vector<int32_t> lengths;
  int32_t left = options.tokens;
  for (uint64_t i = 0; left > 0; ++i) {
    int32_t length = options.length;
    if (options.mixed_length) {
      const double u = UniformAt(/*seed=*/1, RandomSite::kSampling, micro_batch, i);
      length = 4 + static_cast<int32_t>(u * (2 * options.length - 7));
    }
    lengths.push_back(std::min(length, left));
    left -= lengths.back();
  }
  return lengths;
}

std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return offsets;
}

constexpr RandomCounter kCounter = {.seed = 1, .step = 1};

constexpr int64_t kPattern = 4096;

// The block that a tensor repeats, in the format of `storage`.
std::vector<std::byte> Pattern(Storage storage, TensorValues values) {
  std::vector<std::byte> bytes(kPattern * BytesOf(storage));
  for (int64_t i = 0; i < kPattern; ++i) {
    const double uniform = UniformAt(1, RandomSite::kSampling, 0, i);
    const float value = static_cast<float>(values == TensorValues::kSigned ? 2 * uniform - 1 : 0.5 + uniform);
    if (storage == Storage::kFloat32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<BFloat16*>(bytes.data())[i] = RoundedToBFloat16(value);
    }
  }
  return bytes;
}

int Times(Traffic traffic) {
  if (traffic == Traffic::kScratch) return 0;
  return traffic == Traffic::kUpdated ? 2 : 1;
}

}  // namespace

PackedBatch RandomBatch(const BenchBatchOptions& options, int32_t micro_batch) {
  const auto tokens = [&](uint32_t stream) {
    std::vector<int32_t> row(options.tokens);
    for (size_t i = 0; i < row.size(); ++i) {
      const double u = UniformAt(/*seed=*/2, RandomSite::kSampling, 4 * micro_batch + stream, i);
      row[i] = kSpecialTokens + static_cast<int32_t>(u * (options.vocabulary - kSpecialTokens));
    }
    return row;
  };
  std::vector<int32_t> lengths = SentenceLengths(options, micro_batch);
  PackedBatch batch{.micro_batch = micro_batch,
                    .source = tokens(0),
                    .target_input = tokens(1),
                    .target = tokens(2),
                    .target_offsets = OffsetsOf(lengths)};
  std::reverse(lengths.begin(), lengths.end());  // so that pairs differ in length where lengths are mixed
  batch.source_offsets = OffsetsOf(lengths);
  batch.samples.resize(lengths.size());
  return batch;
}

absl::StatusOr<std::shared_ptr<const KernelBatch>> KernelBatch::Create(const Stream& stream, int64_t rows,
                                                                       int64_t length, int64_t vocabulary) {
  auto batch = std::make_shared<KernelBatch>();
  for (int64_t i = 0; i < rows; ++i) batch->tokens_.push_back(static_cast<int32_t>(7919 * i % vocabulary));
  for (int64_t row = 0; row < rows; row += length) batch->offsets_.push_back(static_cast<int32_t>(row));
  batch->offsets_.push_back(static_cast<int32_t>(rows));
  if (stream.device() != nullptr) HADAL_RETURN_IF_ERROR(batch->Place(stream));
  return batch;
}

absl::Status KernelBatch::Place(const Stream& stream) {
  const BatchContent content = {.random = {.seed_low = static_cast<uint32_t>(kCounter.seed), .step = kCounter.step},
                                .gradient_scale = gradient_scale(),
                                .source = tokens(),
                                .target_input = tokens(),
                                .target = tokens(),
                                .source_offsets = offsets(),
                                .target_offsets = offsets()};
  const DeviceBatchShape shape = ShapeOf(content);
  ArenaLayout layout;
  const ArenaSlice block = layout.ReserveBytes("batch", BatchBytes(shape));
  const ArenaSlice on_host = layout.ReserveHostBytes("batch", BatchBytes(shape));
  HADAL_ASSIGN_OR_RETURN(arena_, Arena::Allocate(layout, stream.device()));
  stream.device()->kernels().write_batch(content, shape, arena_.Get<std::byte>(on_host));
  stream.FromHost(arena_.Get<std::byte>(block), arena_.Get<std::byte>(on_host), block.bytes);
  device_batch_ = DeviceBatchIn(shape, 0, arena_.Get<std::byte>(block));
  return absl::OkStatus();
}

Dropout KernelBatch::DropoutAt(RandomSite site, bool on) const {
  Dropout dropout = {
      .counter = kCounter, .threshold = on ? Dropout::Threshold(0.1) : 0, .device_position = device_batch_.random};
  dropout.counter.site = site;
  return dropout;
}

std::byte* KernelTensors::Allocate(int64_t bytes) {
  if (!status_.ok()) return nullptr;
  ArenaLayout layout;
  const ArenaSlice slice = layout.ReserveBytes("tensor", bytes);
  absl::StatusOr<Arena> arena = Arena::Allocate(layout, stream_.device());
  if (!arena.ok()) {
    status_ = arena.status();
    return nullptr;
  }
  return arenas_.emplace_back(*std::move(arena)).Get<std::byte>(slice);
}

AnyMatrix KernelTensors::Matrix(Traffic traffic, int64_t rows, int64_t columns, Storage storage, TensorValues values) {
  const int64_t bytes = rows * columns * BytesOf(storage);
  std::byte* const data = Allocate(bytes);
  if (data == nullptr) return {};
  const std::vector<std::byte> pattern = Pattern(storage, values);
  int64_t filled = std::min<int64_t>(bytes, std::ssize(pattern));
  stream_.FromHost(data, pattern.data(), filled);
  while (filled < bytes) {
    const int64_t more = std::min(filled, bytes - filled);
    stream_.Copy(data + filled, data, more);
    filled += more;
  }
  bytes_ += Times(traffic) * static_cast<double>(bytes);
  return {data, rows, columns, storage};
}

Vector KernelTensors::Floats(Traffic traffic, int64_t size, TensorValues values) {
  return {Matrix(traffic, 1, size, Storage::kFloat32, values).floats().data, size};
}

}  // namespace hadal
