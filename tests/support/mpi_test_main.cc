#include "tests/support/mpi_test_main.h"

#include <cstdio>
#include <cstdlib>

#include "gtest/gtest.h"
#include "runtime/check.h"

namespace hadal::testing {
namespace {

const MpiEnvironment* environment = nullptr;

// Without this check, ranks that did not find each other would each pass alone, as a world of one.
bool SizeIsAsRegistered(int size) {
  const char* const registered = std::getenv("HADAL_TEST_RANKS");
  if (registered == nullptr || std::atoi(registered) == size) return true;
  std::fprintf(stderr, "MPI has %d ranks, the test is registered with %s\n", size, registered);
  return false;
}

int RunTests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto started = MpiEnvironment::Start(&argc, &argv);
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.status().ToString().c_str());
    return 1;
  }
  if (!SizeIsAsRegistered((*started)->size())) return 1;
  environment = started->get();
  const int result = RUN_ALL_TESTS();
  environment = nullptr;
  return result;
}

}  // namespace

const MpiEnvironment& TestMpiEnvironment() {
  HADAL_CHECK(environment != nullptr);
  return *environment;
}

}  // namespace hadal::testing

int main(int argc, char** argv) { return hadal::testing::RunTests(argc, argv); }
