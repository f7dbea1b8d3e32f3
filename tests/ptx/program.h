// Kernels parsed from the PTX that nvcc makes.
//
// A register is 32 words, one a lane; a value has the low bits of its word, signed ones extended. Immediate operands
// and symbols are registers that nothing writes. A predicate is the mask in a register's first word.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hadal::ptx {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = ~uint32_t{0};

class Warp;
struct Instruction;
// Executes an instruction for the lanes of a mask.
using Step = void (*)(Warp& warp, const Instruction& instruction, uint32_t lanes);

// kCollective: all lanes of the warp execute it together.
enum class Kind { kPlain, kBranch, kExit, kCollective, kBarrier };

struct Operation {
  Kind kind = Kind::kPlain;
  Step step = nullptr;
};
// By opcode with its modifiers, for example "add.s32".
const std::map<std::string, Operation>& Operations();

struct Instruction {
  Operation operation;
  int predicate = -1;  // register, or -1: none
  bool negated = false;
  int target = 0;                  // of a branch
  std::array<int, 14> operands{};  // registers, in the order of the text; a vector's elements one by one
  int64_t offset = 0;              // of an address
  uint32_t used = kAllLanes;       // bit i: byte i of what is loaded is used
  std::string text;
};

enum class Special { kThread, kThreads, kBlockX, kBlockY, kBlocksX, kCount };

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::vector<std::pair<int64_t, int64_t>> parameters;  // offset and bytes
  int64_t parameter_bytes = 0, shared_bytes = 0;
  int registers = 0;
  std::map<int, uint64_t> constants;                           // of registers that nothing writes
  std::array<int, static_cast<int>(Special::kCount)> special;  // registers, or -1: not used
};

// The kernels of PTX text, each parsed when it is first asked for. Throws Fault for what the interpreter does not know.
class Program {
 public:
  explicit Program(const std::string& text);

  // By mangled name, without nvcc's number of the compilation (StableName).
  const Kernel& Find(const std::string& name);
  std::vector<std::string> names() const;
  const std::map<std::string, Kernel>& parsed() const { return kernels_; }

 private:
  std::map<std::string, std::string> texts_;
  std::map<std::string, Kernel> kernels_;
};

std::string StableName(const std::string& mangled);

}  // namespace hadal::ptx
