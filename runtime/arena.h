// One arena a rank. Every buffer is known before the first step: an ArenaLayout adds them up, then Arena allocates them
// once. `hadal plan` builds the same layout and only prints it; so its bytes are those of the arena.
// A region is either for kernels, and lies on the rank's device, or for the host (messages, files). If the kernels run
// on the CPU, one part serves both.
//
// A rank runs several programs by turns: training with its evaluations, and translating validation sentences. Lasting
// regions (weights, moments, constants) keep their contents from one program to the next. All other regions are scratch
// of one program. The scratch of all programs lies in the same place, so an arena is as large as its largest program
// needs:
//
//   device part   | lasting: weights  moments … | training: gradients  activations  workspace … |
//                 |                             | translation: caches  workspace |
//   host part     | lasting: checkpoint buffer  | training: borders … | and so on
//   bytes of a part = lasting + max over the programs of their scratch
//
// A program must therefore read nothing from its scratch that it has not written since it began: the scratch may hold
// NaN or another program's numbers. And when a program ends, no message, copy or kernel that uses its scratch may be
// under way.
//
// Thread safety: a layout is built by one thread; a finished Arena is read-only and may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// Where a region lies: on the host or on the device; in the lasting memory or in a program's scratch.
struct ArenaSection {
  bool on_host = false;
  bool lasting = false;
  bool operator==(const ArenaSection&) const = default;
};

// A place in one of the arena's sections: bytes [offset, offset + bytes).
struct ArenaSlice {
  int64_t offset = 0;
  int64_t bytes = 0;
  ArenaSection section;
};

// Adds up named regions. Each starts on a 64-byte boundary.
class ArenaLayout {
 public:
  static constexpr int64_t kAlignmentBytes = 64;
  // Bytes as a region takes them: rounded up to the alignment.
  static constexpr int64_t Aligned(int64_t bytes) {
    return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  }

  ArenaLayout() = default;
  // For kernels on that kind of device. On the CPU host regions and kernel regions are added up together, as one part.
  explicit ArenaLayout(DeviceKind kind) : host_apart_(kind != DeviceKind::kCpu) {}

  // Reserves `count` elements of T in the program's scratch under `category` ("workspace", "activations", …).
  // Categories are summed for reports.
  template <typename T>
  ArenaSlice Reserve(const std::string& category, int64_t count) {
    return ReserveBytes(category, count * static_cast<int64_t>(sizeof(T)));
  }
  ArenaSlice ReserveBytes(const std::string& category, int64_t bytes) { return Add(category, bytes, {}); }
  // The same for memory that only the host uses.
  ArenaSlice ReserveHostBytes(const std::string& category, int64_t bytes) {
    return Add(category, bytes, {.on_host = true});
  }
  // The same for lasting memory.
  template <typename T>
  ArenaSlice ReserveLasting(const std::string& category, int64_t count) {
    return Add(category, count * static_cast<int64_t>(sizeof(T)), {.lasting = true});
  }
  ArenaSlice ReserveLastingHostBytes(const std::string& category, int64_t bytes) {
    return Add(category, bytes, {.on_host = true, .lasting = true});
  }
  // Scratch reserved from here on belongs to the next program and lies in the same place as the scratch of the others.
  void BeginProgram();

  int64_t device_bytes() const { return device_.bytes(); }
  int64_t host_bytes() const { return host_.bytes(); }
  int64_t total_bytes() const { return device_bytes() + host_bytes(); }
  // By how much the sum of the categories exceeds total_bytes(): scratch that shares its place with other programs'.
  int64_t overlaid_bytes() const { return device_.overlaid + host_.overlaid; }
  // The bytes that regions of one name take in one section, of one program.
  struct Category {
    std::string name;
    ArenaSection section;
    int program = 0;  // of scratch: which program, from 0
    int64_t bytes = 0;
  };
  // In order of first use.
  const std::vector<Category>& categories() const { return categories_; }

 private:
  friend class Arena;
  struct Part {
    int64_t lasting = 0;
    int64_t scratch = 0;  // of the program being laid out
    int64_t widest = 0;   // largest scratch of all programs so far
    int64_t overlaid = 0;
    int64_t bytes() const { return lasting + widest; }
  };
  ArenaSlice Add(const std::string& category, int64_t bytes, ArenaSection section);

  bool host_apart_ = true;
  Part device_, host_;
  int program_ = 0;
  std::vector<Category> categories_;
};

// The memory itself, zero-filled. On the CPU one page-aligned mapping. A page takes memory when it is first touched, or
// in MakeResident.
class Arena {
 public:
  // `device`: null for the CPU; must outlive the arena. Errors: ResourceExhausted, with the bytes asked for and what to
  // try.
  static absl::StatusOr<Arena> Allocate(const ArenaLayout& layout, Device* device = nullptr);

  // Gives every page its memory now, in huge pages where the system has them; the stream's threads share the work. From
  // its first step the run then holds what was planned, and a host that cannot give it fails before training, not hours
  // into it. On a device all memory is already resident.
  // Errors: ResourceExhausted (a control group's limit may end the process instead). Blocking: about a second for each
  // 3 GB and thread.
  absl::Status MakeResident(const Stream& stream);

  Arena() = default;  // empty; holds nothing
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  ~Arena();

  template <typename T>
  T* Get(const ArenaSlice& slice) const {
    const Part& part = slice.section.on_host ? host_ : on_device_;
    const int64_t begin = slice.section.lasting ? 0 : part.lasting_bytes;
    HADAL_CHECK_LE(begin + slice.offset + slice.bytes, slice.section.lasting ? part.lasting_bytes : part.bytes);
    return reinterpret_cast<T*>(part.base + begin + slice.offset);
  }
  int64_t bytes() const { return on_device_.bytes + host_.bytes; }
  // All scratch of a part. It may be overwritten between two programs.
  std::span<std::byte> scratch(bool on_host) const {
    const Part& part = on_host ? host_ : on_device_;
    return {part.base + part.lasting_bytes, static_cast<size_t>(part.bytes - part.lasting_bytes)};
  }
  // The device that holds the kernels' part; null: it lies in the process's memory.
  Device* device() const { return device_; }

 private:
  struct Part {
    std::byte* base = nullptr;
    int64_t lasting_bytes = 0, bytes = 0;  // scratch lies after lasting_bytes
  };
  explicit Arena(const ArenaLayout& layout);
  static absl::StatusOr<Arena> AllocateOn(const ArenaLayout& layout, Device& device);

  Device* device_ = nullptr;
  Part on_device_, host_;  // on the CPU two parts of one mapping
};

}  // namespace hadal
