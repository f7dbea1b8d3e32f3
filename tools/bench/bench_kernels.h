// `hadal bench kernels` measures each kernel's speed and compares it with the bandwidth of a memory copy.
//
// What: first a copy's bandwidth (bytes read plus written; the fastest of copies of 1, 2 and 4 times large_bytes), then
// each case of memory_bound_cases.cc (GB/s and share of the copy's bandwidth) and product_cases.cc (TFLOP/s).
// How: every case rotates through enough sets of tensors (rotation_bytes) that no cache holds them. On a device one
// rotation is recorded as a graph where possible, as in training, to hide launch overhead. A batch is as many rotations
// as take batch_seconds, timed between two synchronisations; the result is the median of `repeats` batches.
// Goal on a device: residual_norm, Adam and cross-entropy reach kCopyShareGoal of the copy's bandwidth on tensors of
// large_bytes.
// Threads: the stream's. Blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/status_macros.h"
#include "runtime/storage.h"
#include "runtime/stream.h"
#include "tools/bench/kernel_batch.h"

namespace hadal {

// The shapes of all cases.
struct KernelShapes {
  int64_t large_bytes = int64_t{256} << 20;  // of each tensor in the large cases
  std::vector<int64_t> rows = {4096, 16384}, widths = {512, 1024};
  std::vector<int64_t> lengths = {32, 512};   // of attention's sentences; the last is also measured causal
  int64_t head_width = 64;                    // REQUIRES: divides the widths
  int64_t vocabulary = 32000;                 // REQUIRES: no multiple of 7919 (kernel_batch.h)
  int64_t slice_elements = int64_t{1} << 20;  // of a parameter
};

// Launches the kernel once. The kernel's tensors must outlive the function.
using KernelLaunch = std::function<void()>;

// One kernel at one shape: the bytes or operations it needs, and how to launch it.
struct KernelCase {
  std::string kernel;  // "residual_norm forward, dropout"
  std::string shape;   // "4096 x 512"
  Storage storage = Storage::kFloat32;
  bool large = false;      // on tensors of large_bytes
  bool has_goal = false;   // whether the large case should reach kCopyShareGoal
  bool recordable = true;  // whether a device can record it into a graph
  double flops = 0;        // per launch, for kernels bound by arithmetic; 0: measured in bytes
  // Allocates one more set of tensors and returns its launch. Errors: those of allocation.
  std::function<absl::StatusOr<KernelLaunch>(const Stream& stream, KernelTensors& tensors)> prepare;
};

// Of the batch that a case's launches read.
struct BatchShape {
  int64_t rows = 1, length = 1, vocabulary = 2;
};

// Returns `of` with launches of `kernel`. make(stream, tensors, batch) returns the arguments of one; those that hold an
// empty tensor are not used, because its allocation has failed.
template <typename Args, typename Make>
KernelCase WithLaunch(KernelCase of, BatchShape shape, void (*kernel)(const Stream&, const Args&), const Make& make) {
  of.prepare = [=](const Stream& stream, KernelTensors& tensors) -> absl::StatusOr<KernelLaunch> {
    HADAL_ASSIGN_OR_RETURN(const auto batch, KernelBatch::Create(stream, shape.rows, shape.length, shape.vocabulary));
    const Args args = make(stream, tensors, *batch);
    HADAL_RETURN_IF_ERROR(tensors.status());
    return [stream, args, batch, kernel] { kernel(stream, args); };
  };
  return of;
}

// The memory-bound kernels at each shape, for `hadal bench kernels`.
//
// Bytes that each kernel must move: each input read once, each output written once. b: 2 in bf16, 4 in fp32; R rows, W
// columns, V the vocabulary's size, n elements. The tensors, by name, follow the bytes.
//   residual_norm forward    4·b·R·W + 8·R + 12·W        x, y, s, n; mean, rstd; bias, scale, shift
//   residual_norm backward   4·b·R·W + 8·R + 28·W        dn, s, dx, dy; mean, rstd; scale, and three sums of columns
//                                                        that are added to
//   adam                     28·n, with a bf16 copy 30·n     p, m, v read and written, g read (fp32); the copy written
//   cross_entropy            2·b·R·V + 12·R              logits read, gradients written over them; target, loss, nll
//   embedding forward        b·R·W + 8·R + b·T·W + 4·P·W     x; token, position; rows of the T tokens and the P
//                                                            positions that occur
//   embedding backward       b·R·W + 4·R + 8·T·W         dx; rows grouped by token; the table's gradient, read and
//                                                        written
//   relu_backward            3·b·R·W                     y; dx read and written
//   convert                  6·R·W                       one side fp32, the other bf16
//   add                      12·n                        sum read and written, values
//   sum_of_squares           4·n                         x
// Returns the cases that `stream` can run: bf16 activations only on a device.
std::vector<KernelCase> MemoryBoundCases(const KernelShapes& shapes, const Stream& stream);

// The compute-bound kernels at each shape, for `hadal bench kernels`.
//
// Operations of each; a multiply-add is two. P: pairs of a query and a key of one sentence (causal: the key not later
// than the query); H heads of width D. Softmax, dropout and other epilogues are not counted: a kernel should hide them.
//   attention forward    4·P·H·D      Q·Kᵀ, P·V
//   attention backward   10·P·H·D     Q·Kᵀ again, dO·Vᵀ, and the gradients of q, k and v
//   linear               2·R·in·out   each of its three products; on the CPU also the time of as many multiply-adds in
//                                     registers (HostGemmLimit)
//   orthogonalize        OrthogonalizeOperations (kernels/orthogonalize.h), on the CPU only the half of
//                                     each symmetric product that is computed
// Returns the cases that `stream` can run: bf16 only on a device.
std::vector<KernelCase> ProductCases(const KernelShapes& shapes, const Stream& stream);

inline constexpr double kCopyShareGoal = 0.85;

struct BenchKernelsOptions {
  KernelShapes shapes;
  std::string only;  // measures only kernels whose names begin with this
  int64_t rotation_bytes = int64_t{512} << 20;
  double batch_seconds = 0.02;
  int32_t repeats = 7;
  bool json = false;
};

struct KernelSpeed {
  std::string kernel, shape;
  Storage storage = Storage::kFloat32;
  bool large = false, has_goal = false;  // those of KernelCase
  double bytes = 0, flops = 0;           // per launch; bytes are reported if flops is 0
  double seconds = 0;                    // per launch, median of the batches
  double cpu_seconds = 0;                // of the process's threads, likewise
};

struct KernelSpeeds {
  double copy_bytes_per_second = 0;
  std::vector<KernelSpeed> kernels;
};

// Measures all cases, those with a goal first. `measured` is called with the results so far, after the copy and after
// each case; it may be empty.
// Errors: ResourceExhausted, naming the case whose tensors do not fit; InvalidArgument if no kernel's name begins with
// `only`.
absl::StatusOr<KernelSpeeds> MeasureKernels(const BenchKernelsOptions& options, const Stream& stream,
                                            const std::function<void(const KernelSpeeds&)>& measured = {});

// Measures and writes a table, row by row as results arrive, or JSON. Errors: those of MeasureKernels.
absl::Status RunBenchKernels(const BenchKernelsOptions& options, const Stream& stream, std::ostream& out);

}  // namespace hadal
