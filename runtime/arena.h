// A rank's memory. ArenaLayout adds up the sizes of all buffers before the first step; Arena allocates them at once.
// `hadal plan` prints the sizes of the same layout.
// A region is one reserved buffer. It is either for kernels (in device memory) or for the host (messages, files). In
// a layout for the CPU both kinds are in one part, and the host part is empty.
//
// A rank does two kinds of work in turn, called programs: training with its evaluations, and translation of validation
// sentences. Lasting regions (weights, moments, constants) keep their contents from one program to the next. All other
// regions are scratch of one program. The scratch of all programs overlaps: it takes the size of the largest.
//
//   device part   | lasting: weights  moments … | training: gradients  activations  workspace … |
//                 |                             | translation: caches  workspace |
//   host part     | lasting: checkpoint buffer  | training: messages … | and so on
//   bytes of a part = lasting + max over the programs of their scratch
//
// At its start a program's scratch may hold NaN or another program's values, so a program must write scratch before it
// reads it. A program may end only when no message, copy or kernel uses its scratch.
// Thread safety: a layout is built by one thread. A finished Arena is read-only and may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// The kind of a region: host or kernels, lasting or scratch.
struct ArenaSection {
  bool on_host = false;
  bool lasting = false;
  bool operator==(const ArenaSection&) const = default;
};

// Bytes [offset, offset + bytes) of a section.
struct ArenaSlice {
  int64_t offset = 0;
  int64_t bytes = 0;
  ArenaSection section;
};

// Computes the offsets of named regions. Each region starts on a 64-byte boundary.
class ArenaLayout {
 public:
  static constexpr int64_t kAlignmentBytes = 64;
  // `bytes` rounded up to the alignment: the space that a region takes.
  static constexpr int64_t Aligned(int64_t bytes) {
    return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  }

  ArenaLayout() = default;
  // A layout for kernels on a device of kind `kind`. For the CPU host regions and kernel regions form one part.
  // `gap_bytes`, a multiple of the alignment: unused bytes after each region, for tests of accesses outside regions.
  explicit ArenaLayout(DeviceKind kind, int64_t gap_bytes = 0)
      : host_apart_(kind != DeviceKind::kCpu), gap_bytes_(gap_bytes) {}

  // Whether host regions form a part of their own: unless the layout is for the CPU.
  bool host_apart() const { return host_apart_; }

  // Reserves `count` elements of T in the program's scratch under `category` ("workspace", "activations", …). Reports
  // show the sum of each category.
  template <typename T>
  ArenaSlice Reserve(const std::string& category, int64_t count) {
    return ReserveBytes(category, count * static_cast<int64_t>(sizeof(T)));
  }
  ArenaSlice ReserveBytes(const std::string& category, int64_t bytes) { return Add(category, bytes, {}); }
  // As ReserveBytes, in host memory.
  ArenaSlice ReserveHostBytes(const std::string& category, int64_t bytes) {
    return Add(category, bytes, {.on_host = true});
  }
  // As Reserve, in lasting memory.
  template <typename T>
  ArenaSlice ReserveLasting(const std::string& category, int64_t count) {
    return Add(category, count * static_cast<int64_t>(sizeof(T)), {.lasting = true});
  }
  ArenaSlice ReserveLastingHostBytes(const std::string& category, int64_t bytes) {
    return Add(category, bytes, {.on_host = true, .lasting = true});
  }
  // Starts the next program; a new layout is in program 0. Scratch regions reserved from now on belong to the new
  // program and overlap the scratch of the others.
  void BeginProgram();

  int64_t device_bytes() const { return device_.bytes(); }
  int64_t host_bytes() const { return host_.bytes(); }
  int64_t total_bytes() const { return device_bytes() + host_bytes(); }
  // The sum of all categories minus total_bytes(): bytes of scratch that overlap another program's scratch.
  int64_t overlaid_bytes() const { return device_.overlaid + host_.overlaid; }
  // The bytes of all regions of one name, section and program.
  struct Category {
    std::string name;
    ArenaSection section;
    int program = 0;  // for scratch: the program's index
    int64_t bytes = 0;
  };
  // In order of first use.
  const std::vector<Category>& categories() const { return categories_; }
  // The unused bytes after each region, if gap_bytes is not 0.
  struct Gap {
    ArenaSlice slice;
    int program = 0;  // as in Category
  };
  const std::vector<Gap>& gaps() const { return gaps_; }

 private:
  friend class Arena;
  struct Part {
    int64_t lasting = 0;
    int64_t scratch = 0;  // scratch of the current program
    int64_t widest = 0;   // largest scratch of all programs
    int64_t overlaid = 0;
    int64_t bytes() const { return lasting + widest; }
  };
  ArenaSlice Add(const std::string& category, int64_t bytes, ArenaSection section);

  bool host_apart_ = true;
  int64_t gap_bytes_ = 0;
  std::vector<Gap> gaps_;
  Part device_, host_;
  int program_ = 0;
  std::vector<Category> categories_;
};

// The allocated memory, zero-filled. On the CPU it is one page-aligned mapping; the system provides a page when it is
// first touched, or in MakeResident.
class Arena {
 public:
  // Allocates the layout's memory. `device`: null for the CPU; must outlive the arena. Errors: ResourceExhausted, with
  // the bytes requested and a remedy.
  static absl::StatusOr<Arena> Allocate(const ArenaLayout& layout, Device* device = nullptr);

  // Touches every page, in huge pages where the system has them, so that too little memory is an error before training
  // and not hours into it. The stream's threads share the work. Does nothing on a device, whose memory is always
  // resident.
  // Errors: ResourceExhausted (or a control group's limit ends the process). Blocking: about a second for each 3 GB and
  // thread.
  absl::Status MakeResident(const Stream& stream);

  Arena() = default;  // empty: no memory
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  ~Arena();

  // The address of a slice. REQUIRES: the slice is from the layout that the arena was allocated for.
  template <typename T>
  T* Get(const ArenaSlice& slice) const {
    const Part& part = slice.section.on_host ? host_ : on_device_;
    const int64_t begin = slice.section.lasting ? 0 : part.lasting_bytes;
    HADAL_CHECK_LE(begin + slice.offset + slice.bytes, slice.section.lasting ? part.lasting_bytes : part.bytes);
    return reinterpret_cast<T*>(part.base + begin + slice.offset);
  }
  int64_t bytes() const { return on_device_.bytes + host_.bytes; }
  // All scratch of the host part or of the kernels' part. Between two programs the caller may overwrite this memory.
  std::span<std::byte> scratch(bool on_host) const {
    const Part& part = on_host ? host_ : on_device_;
    return {part.base + part.lasting_bytes, static_cast<size_t>(part.bytes - part.lasting_bytes)};
  }
  // The device that holds the kernels' part; null: process memory.
  Device* device() const { return device_; }

 private:
  struct Part {
    std::byte* base = nullptr;
    int64_t lasting_bytes = 0, bytes = 0;  // scratch starts at lasting_bytes
  };
  explicit Arena(const ArenaLayout& layout);
  static absl::StatusOr<Arena> AllocateOn(const ArenaLayout& layout, Device& device);

  Device* device_ = nullptr;
  Part on_device_, host_;  // without a device: one mapping, on_device_ first
};

// A region and, once bound, its address: first `buffer = layout.Reserve<float>(…)`, then, after Arena::Allocate,
// `Bind(arena, buffer, …)`. The address is null until then, and always if no bytes are reserved.
template <typename T>
class ArenaBuffer {
 public:
  ArenaBuffer& operator=(const ArenaSlice& slice) {
    slice_ = slice;
    return *this;
  }
  void Bind(const Arena& arena) { data_ = slice_.bytes > 0 ? arena.Get<T>(slice_) : nullptr; }
  T* data() const { return data_; }
  operator T*() const { return data_; }  // NOLINT(google-explicit-constructor)

 private:
  ArenaSlice slice_;
  T* data_ = nullptr;
};
template <typename... T>
void Bind(const Arena& arena, ArenaBuffer<T>&... buffers) {
  (buffers.Bind(arena), ...);
}

}  // namespace hadal
