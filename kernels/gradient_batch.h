// GradientBatch collects parts of a backward pass that a device may do later, and launches them together.
//
//   merge     the second stage of a sum over rows (column_merge.h): gradients of biases, of a norm's scale and shift
//   product   LinearBackwardWeight: dW += dyᵀ·x, and its sum over rows
// Why: at 4,096 rows of 512 columns a norm's merges read 1.6 MB, half a microsecond's traffic, and a weight's gradient
// has fewer tiles than a GPU has multiprocessors. One launch does the merges of several sublayers, and one the products
// of equal shape at a constant distance from each other, such as those of consecutive layers.
// Numerics: a batch changes no bit. The order of each sum depends only on its own shape, and additions to one
// destination keep the order of the calls.
// Memory: the sums of the first stage are in the memory given to Bind; when it is full, Take launches the merges. A
// product's operands are not copied: they must not change before LaunchProducts, after Fork not before the next one.
// Destinations are complete after Launch. Fork: products and their sums run on a queue of their own, beside what the
// main order launches next; LaunchProducts lets it wait for the products before, Launch for all.
// Threads: one, that of the device's main queue. Asynchronous. No allocation after construction and Fork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/column_merge.h"
#include "kernels/linear.h"
#include "runtime/side_queue.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

class GradientBatch {
 public:
  static constexpr size_t kMostMerges = 512;

  GradientBatch();

  // Floats of memory for micro-batches of `rows` rows: enough for the sums of eight norms of `width` columns (five or
  // more sublayers of a deep model), and for one sum of `widest` columns.
  static int64_t Floats(int64_t rows, int64_t width, int64_t widest);
  // Sets the memory for the sums of first stages, in device memory. Must be called before the other methods.
  void Bind(Vector memory) { memory_ = memory; }
  // Makes the queue, with its own `memory`, as Bind's, and a `workspace` (OwnMemory::kWorkspaceBytes, on 256 bytes).
  absl::Status Fork(Device& device, Vector memory, std::byte* workspace);
  // The workspace of products launched with this batch; null: the device's.
  std::byte* workspace() const { return workspace_; }

  // Returns memory for the first stage of at most `merges` merges. REQUIRES: floats ≤ memory_floats().
  float* Take(const Stream& stream, int64_t floats, int64_t merges);
  // Returns the list to which an operation appends the merges of what Take returned, after the launch of their first
  // stage.
  std::vector<ColumnMerge>& merges() { return merges_; }
  int64_t memory_floats() const { return memory_.size; }
  // Adds a product with at least one row. If one in the batch has the same destination, launches the batch's products
  // first.
  void Put(const Stream& stream, const LinearBackwardWeightArgs& product);

  // Returns whether there were any.
  bool LaunchProducts(const Stream& stream);
  // Launches the products and then all merges.
  void Launch(const Stream& stream);

 private:
  static constexpr size_t kMostProducts = 256;

  void LaunchMerges(const Stream& stream);
  // Lets the main order wait for products on the other queue.
  void Join();

  Vector memory_;
  std::byte* workspace_ = nullptr;
  std::unique_ptr<SideQueue> queue_;       // of products; null: the main queue
  std::unique_ptr<GradientBatch> beside_;  // the sums over rows on it
  int under_way_ = -1;                     // the last piece on it; −1: joined
  int64_t used_ = 0;
  std::vector<ColumnMerge> merges_;
  std::vector<LinearBackwardWeightArgs> products_;
};

}  // namespace hadal
