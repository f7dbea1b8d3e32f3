// The readers against many mutated files: the same ones in every run, so that what fails once fails again.
//
// No feedback guides the mutations; the libFuzzer programs of this folder (README.md) have that. Memory is watched by
// counting what operator new hands out: a number in a file that decides an allocation shows as a peak far beyond the
// input's size.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <utility>

#include "gmock/gmock.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/reader_targets.h"

namespace {

// Bytes handed out and not given back, and the most there were, since `Watch` began. malloc_usable_size would do as
// well; a header in front of each block needs no extension.
struct Watched {
  int64_t live = 0;
  int64_t peak = 0;
};
thread_local Watched watched;
constexpr size_t kHeader = alignof(std::max_align_t);

}  // namespace

void* operator new(size_t bytes) {
  void* const block = std::malloc(bytes + kHeader);
  if (block == nullptr) throw std::bad_alloc();
  *static_cast<size_t*>(block) = bytes;
  watched.live += static_cast<int64_t>(bytes);
  watched.peak = std::max(watched.peak, watched.live);
  return static_cast<char*>(block) + kHeader;
}
void operator delete(void* pointer) noexcept {
  if (pointer == nullptr) return;
  char* const block = static_cast<char*>(pointer) - kHeader;
  watched.live -= static_cast<int64_t>(*reinterpret_cast<size_t*>(block));
  std::free(block);
}
void operator delete(void* pointer, size_t) noexcept { operator delete(pointer); }
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete[](void* pointer) noexcept { operator delete(pointer); }
void operator delete[](void* pointer, size_t) noexcept { operator delete(pointer); }

namespace hadal::fuzz {
namespace {

// Peak of operator new's live bytes within one run of a target.
int64_t PeakBytes(const ReaderTarget& target, const std::string& input) {
  const int64_t before = watched.live;
  watched.peak = before;
  target.run(input);
  return watched.peak - before;
}

// Parsed JSON takes up to some hundred bytes a byte of text ("[[],[],…"); buffers of readers are a few MiB.
int64_t Allowed(const std::string& input) { return 300 * static_cast<int64_t>(input.size()) + (int64_t{4} << 20); }

int Runs() {
  const char* const runs = std::getenv("HADAL_FUZZ_RUNS");
  return runs != nullptr ? std::atoi(runs) : 10000;
}

// Hand-written hostile files and former findings: HADAL_FUZZ_CORPUS/<target>/*. A checkpoint's directory takes those of
// its manifest.
std::vector<std::string> CommittedFiles(const std::string& name) {
  std::vector<std::string> files;
  const std::filesystem::path directory =
      std::filesystem::path(HADAL_FUZZ_CORPUS) / (name == "checkpoint_directory" ? "checkpoint_manifest" : name);
  if (!std::filesystem::exists(directory)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return files;
}

class Fuzz : public ::testing::TestWithParam<ReaderTarget> {};

TEST_P(Fuzz, TakesGoodFiles) {
  for (const std::string& seed : GetParam().seeds()) EXPECT_TRUE(GetParam().run(seed));
}

TEST_P(Fuzz, RefusesCommittedHostileFiles) {
  for (const std::string& file : CommittedFiles(GetParam().name)) {
    EXPECT_LE(PeakBytes(GetParam(), file), Allowed(file));
    EXPECT_FALSE(GetParam().run(file)) << file.substr(0, 200);
  }
}

TEST_P(Fuzz, SurvivesMutations) {
  std::vector<std::string> seeds = GetParam().seeds();
  for (std::string& file : CommittedFiles(GetParam().name)) seeds.push_back(std::move(file));
  Mutator mutator(/*seed=*/20240229);
  int accepted = 0;
  for (int run = 0; run < Runs(); ++run) {
    const std::string input = mutator.Next(seeds);
    const int64_t before = watched.live;
    watched.peak = before;
    accepted += GetParam().run(input) ? 1 : 0;
    ASSERT_LE(watched.peak - before, Allowed(input)) << "run " << run << ", " << input.size() << " bytes";
  }
  RecordProperty("accepted", accepted);
  // A fuzzer that is always, or never, refused tests the door only.
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, Runs());
}

// A folder of another name would be read by nobody.
TEST(FuzzCorpus, EveryFolderIsATargets) {
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HADAL_FUZZ_CORPUS)) {
    const std::string name = entry.path().filename().string();
    const auto is_named = [&](const ReaderTarget& target) { return target.name == name; };
    EXPECT_TRUE(std::any_of(ReaderTargets().begin(), ReaderTargets().end(), is_named)) << name;
    EXPECT_FALSE(std::filesystem::is_empty(entry.path())) << name;
    ++folders;
  }
  EXPECT_GT(folders, 0);
}

INSTANTIATE_TEST_SUITE_P(Readers, Fuzz, ::testing::ValuesIn(ReaderTargets().begin(), ReaderTargets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hadal::fuzz
