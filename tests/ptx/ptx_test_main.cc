// Runs the kernel tests on the interpreter. With --every_kernel also fails if a kernel of the PTX was not launched.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/ptx/machine.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const auto start = std::chrono::steady_clock::now();
  int result = RUN_ALL_TESTS();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  hadal::ptx::Machine& machine = hadal::ptx::Machine::Get();
  const auto& run = machine.program().parsed();
  const auto names = machine.program().names();
  std::printf("%zu of %zu kernels, %.0f million lane-instructions, %.0f million a second\n", run.size(), names.size(),
              1e-6 * machine.steps(), 1e-6 * machine.steps() / seconds.count());
  if (argc < 2 || std::strcmp(argv[1], "--every_kernel") != 0) return result;
  for (const std::string& name : names) {
    if (run.contains(name)) continue;
    std::printf("No test launched %s\n", name.c_str());
    result = 1;
  }
  return result;
}
