// No kernel has a race in shared memory, and each of their barriers is needed: without it the emulator finds one.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "tests/kernels/kernel_accesses.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::testing {
namespace {

namespace fs = std::filesystem;

std::string PlaceOf(const fs::path& file, int64_t line) {
  return file.filename().string() + ":" + std::to_string(line);
}

// No kernel needs it: each begins a tile with a barrier, or with stores to words that the same threads loaded last.
// It stays, because that is no rule for kernels.
constexpr char kPrecaution[] = "if (i != BlockX()) Barrier();";

// Every other barrier in the kernels' sources.
std::set<std::string> BarriersInSources() {
  std::set<std::string> places;
  for (const fs::directory_entry& entry : fs::directory_iterator(HADAL_KERNEL_SOURCES)) {
    if (entry.path().filename() == "thread_layer.h") continue;  // defines it
    std::ifstream file(entry.path());
    std::string text;
    for (int64_t line = 1; std::getline(file, text); ++line) {
      const std::string code = text.substr(0, text.find("//"));
      if (code.find("Barrier();") != std::string::npos && code.find(kPrecaution) == std::string::npos) {
        places.insert(PlaceOf(entry.path(), line));
      }
    }
  }
  return places;
}

TEST(KernelRacesTest, EachBarrierPreventsARace) {
  std::set<std::string> left = BarriersInSources();
  ASSERT_GE(left.size(), 40);
  cuda::KernelEmulator emulator(/*seed=*/1);
  const auto visit = [&](const KernelCase& each) {
    const auto study = [&](const std::source_location* without) {
      cuda::KernelEmulator::RaceStudy result{.without = without};
      emulator.StudyRaces(&result);
      each.launch(emulator.stream());
      emulator.StudyRaces(nullptr);
      return result;
    };
    const cuda::KernelEmulator::RaceStudy whole = study(nullptr);
    EXPECT_EQ(whole.race, "") << each.kernels[0];
    std::set<std::string> tried;
    for (const std::source_location& barrier : whole.barriers) {
      const std::string place = PlaceOf(barrier.file_name(), barrier.line());
      if (!left.contains(place) || !tried.insert(place).second) continue;
      if (!study(&barrier).race.empty()) left.erase(place);
    }
  };
  ForEachKernel(emulator, visit);
  ForEachFurtherCase(emulator, visit);
  EXPECT_THAT(left, ::testing::IsEmpty()) << "no kernel was found to need these barriers";
}

// What the kernels ask of memory is what their table says: a bank conflict, or an access that lost its neighbours,
// shows here.

class KernelAccessesTest : public ::testing::Test {
 protected:
  static const std::vector<KernelAccesses>& Counted() {
    static const auto& counted = *new std::vector<KernelAccesses>(CountKernelAccesses());
    return counted;
  }
};

// Of one kernel's launch beside the same without the second stream: d is read once and written once forward, its
// gradient is read once backward.
TEST_F(KernelAccessesTest, ASecondStreamJoinsTheOnePassOfTheResidualConnection) {
  constexpr int64_t kSectors = 64 * 512 * 4 / 32;  // of a stream
  int compared = 0;
  for (const KernelAccesses& with : Counted()) {
    const bool forward = with.kernel.starts_with("ResidualNormForward");
    if (with.shape != kSecondStreamShape || !with.kernel.starts_with("ResidualNorm")) continue;
    for (const KernelAccesses& without : Counted()) {
      if (without.kernel != with.kernel || without.shape != "64 x 512") continue;
      EXPECT_EQ(with.counts.loads.least - without.counts.loads.least, kSectors) << with.kernel;
      EXPECT_EQ(with.counts.stores.least - without.counts.stores.least, forward ? kSectors : 0) << with.kernel;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6);
}

TEST_F(KernelAccessesTest, TheCommittedTableIsCurrent) {
  std::ifstream file(HADAL_ACCESS_TABLE);
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(committed.str(), AccessTable(Counted()))
      << "where the new counts are meant: kernel_accesses > kernels/cuda/accesses.md";
}

}  // namespace
}  // namespace hadal::testing
