// No kernel has a race in shared memory, and each of their barriers is needed: without it the emulator finds one.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

}  // namespace
}  // namespace hadal::testing
