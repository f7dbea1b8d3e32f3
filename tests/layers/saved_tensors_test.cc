#include "layers/chunk_part.h"

#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/random.h"

namespace hadal {
namespace {

struct Wanted {
  Storage storage;
  int64_t rows, columns;
};

// Ragged shapes in both types, some of them empty.
std::vector<Wanted> RandomTensors(uint32_t stream) {
  const auto draw = [&](uint64_t index, int limit) {
    return static_cast<int>(UniformAt(3, RandomSite::kSampling, stream, index) * limit);
  };
  std::vector<Wanted> tensors;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(
        {draw(3 * i, 2) == 0 ? Storage::kFloat32 : Storage::kBFloat16, draw(3 * i + 1, 6), 1 + draw(3 * i + 2, 9)});
  }
  return tensors;
}

template <typename Byte>
std::vector<SavedMatrix<Byte>> Cut(const std::vector<Wanted>& tensors, Byte* memory, int64_t& bytes) {
  SavedTensors<Byte> saved(memory);
  std::vector<SavedMatrix<Byte>> views;
  for (const Wanted& wanted : tensors) views.push_back(saved.Take(wanted.storage, wanted.rows, wanted.columns));
  bytes = saved.bytes();
  return views;
}

// Every tensor is filled with its own number; all must still be there in the end, within the bytes that were measured.
TEST(SavedTensors, AreAlignedWithinWhatWasMeasuredAndDoNotOverlap) {
  constexpr std::byte kUntouched{0xee};
  for (uint32_t stream = 0; stream < 50; ++stream) {
    const std::vector<Wanted> tensors = RandomTensors(stream);
    int64_t measured = 0, cut = 0, found = 0;
    for (const auto& view : Cut<std::byte>(tensors, nullptr, measured)) EXPECT_TRUE(view.empty());
    struct alignas(16) Block {
      std::byte bytes[16];
    };
    std::vector<Block> memory(measured / 16 + 1);
    auto* const base = reinterpret_cast<std::byte*>(memory.data());
    std::memset(base, static_cast<int>(kUntouched), memory.size() * 16);
    const auto views = Cut<std::byte>(tensors, base, cut);
    EXPECT_EQ(cut, measured);
    int64_t least = 0;
    for (size_t i = 0; i < views.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(views[i].data) % 16, 0u);
      std::memset(views[i].data, static_cast<int>(i + 1), views[i].bytes());
      least += views[i].bytes();
    }
    EXPECT_LE(least, measured);
    EXPECT_LE(measured, least + std::ssize(tensors) * 15);
    // Cut again, as backward does.
    const auto again = Cut<const std::byte>(tensors, base, found);
    for (size_t i = 0; i < again.size(); ++i) {
      const auto* const bytes = static_cast<const std::byte*>(again[i].data);
      for (int64_t b = 0; b < again[i].bytes(); ++b) ASSERT_EQ(bytes[b], std::byte(i + 1)) << i << ", byte " << b;
    }
    for (int64_t b = measured; b < std::ssize(memory) * 16; ++b) EXPECT_EQ(base[b], kUntouched);
  }
}

}  // namespace
}  // namespace hadal
