// The readers against many mutated files: the same ones in every run, so that what fails once fails again.
//
// No feedback guides the mutations; the libFuzzer programs of this folder (README.md) have that. Memory is watched by
// counting what operator new hands out: a number in a file that decides an allocation shows as a peak far beyond the
// input's size.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <random>
#include <utility>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
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

constexpr char kNumbers[] =
    "0 -1 1 4294967295 4294967296 9223372036854775807 -9223372036854775808 18446744073709551615 18446744073709551616 "
    "1e999 1.5 00 null [] \"7\" 1048576 99999999999999999999999999";
constexpr char kTexts[] =  // the first one is empty
    " . .. ../outside ../../outside /etc/passwd a/b outside\\u0000 \\ud800 manifest.json rank_00000.safetensors "
    "__metadata__";
constexpr uint64_t kIntegers[] = {0,
                                  1,
                                  0x7f,
                                  0x80,
                                  0xff,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x100000000,
                                  0x7fffffffffffffff,
                                  0x8000000000000000,
                                  0xffffffffffffffff};

// Mutations of a file, as a fuzzer without feedback makes them: the same sequence for the same seed, on every machine.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // One of `seeds` with one to eight changes: bits and bytes, runs left out, doubled or moved, the ends of two files
  // joined, numbers replaced by extreme ones, texts by hostile names, brackets nested deeply, the end cut off.
  std::string Next(const std::vector<std::string>& seeds);

 private:
  uint64_t Draw(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  void Mutate(std::string& text, const std::vector<std::string>& seeds);
  void ReplaceNumber(std::string& text);
  void ReplaceQuoted(std::string& text);
  void ReplaceInteger(std::string& text);

  std::mt19937_64 random_;
};

std::string Mutator::Next(const std::vector<std::string>& seeds) {
  std::string text = seeds[Draw(seeds.size())];
  for (uint64_t changes = 1 + Draw(8); changes > 0; --changes) Mutate(text, seeds);
  return text;
}

void Mutator::Mutate(std::string& text, const std::vector<std::string>& seeds) {
  const size_t at = Draw(text.size() + 1);
  const size_t length = std::min<size_t>(1 + Draw(Draw(4) == 0 ? 64 : 4), text.size() - at);
  switch (Draw(12)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << Draw(8)));
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(Draw(256));
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(Draw(text.size() + 1), text.substr(at, length));
      break;
    case 4:
      text.insert(at, 1 + Draw(4), static_cast<char>(Draw(256)));
      break;
    case 5: {
      const std::string& other = seeds[Draw(seeds.size())];
      text = text.substr(0, at) + other.substr(Draw(other.size() + 1));
      break;
    }
    case 6:
    case 7:
      ReplaceNumber(text);
      break;
    case 8:
      ReplaceQuoted(text);
      break;
    case 9:
      ReplaceInteger(text);
      break;
    case 10:
      if (Draw(8) == 0) text.insert(at, 1 + Draw(20000), Draw(2) == 0 ? '[' : '{');
      break;
    case 11:
      if (Draw(4) == 0) text.resize(at);
      break;
  }
}

void Mutator::ReplaceNumber(std::string& text) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto begin =
      std::find_if(text.begin() + static_cast<std::ptrdiff_t>(Draw(text.size() + 1)), text.end(), is_digit);
  const auto end = std::find_if_not(begin, text.end(), is_digit);
  const std::vector<std::string> numbers = absl::StrSplit(kNumbers, ' ');
  if (begin != text.end()) text.replace(begin, end, numbers[Draw(numbers.size())]);
}

void Mutator::ReplaceQuoted(std::string& text) {
  const size_t begin = text.find('"', Draw(text.size() + 1));
  const size_t end = begin == std::string::npos ? begin : text.find('"', begin + 1);
  if (end == std::string::npos) return;
  const std::vector<std::string> texts = absl::StrSplit(kTexts, ' ');
  const std::string name = Draw(16) == 0 ? std::string(5000, 'x') : texts[Draw(texts.size())];
  text.replace(begin + 1, end - begin - 1, name);
}

// Little-endian, as in binary headers.
void Mutator::ReplaceInteger(std::string& text) {
  const size_t bytes = Draw(2) == 0 ? 4 : 8;
  if (text.size() < bytes) return;
  // Fields are aligned; the first ones decide most.
  const size_t at = Draw(std::min<size_t>(text.size() - bytes, 128) / 4 + 1) * 4;
  const uint64_t value = kIntegers[Draw(std::size(kIntegers))] + Draw(3) - 1;
  if (at + bytes <= text.size()) std::memcpy(text.data() + at, &value, bytes);
}

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
