// The machine that nvcc's host code launches kernels on: its memory, and the kernels' PTX.
// Threads: one.
#pragma once

#include <memory>

#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"
#include "tests/ptx/warp.h"

namespace hadal::ptx {

class Machine {
 public:
  static Machine& Get();  // One, because nvcc's code registers its kernels before main.

  // Records the name of the kernel that a host function launches.
  void Name(const void* function, const char* name) { names_[function] = StableName(name); }
  void Run(const void* function, const Grid& grid, void** arguments);

  Global& global() { return global_; }
  Program& program();
  int64_t steps() const { return steps_; }  // lane-instructions

 private:
  std::map<const void*, std::string> names_;
  std::unique_ptr<Program> program_;
  Global global_;
  Clock clock_;
  int64_t steps_ = 0;
};

}  // namespace hadal::ptx
