// A thread's calls of CUDA's runtime and cuBLASLt as text, from the emulated libraries: one call a line, its function
// and arguments, no data. tests/gpu/api_replay.h repeats them on a device.
//
// Arguments are numbers and objects. An object's name has its kind and a number: s stream, e event, g recorded graph,
// x graph that can be launched, d device memory, p pinned host memory (both with +offset); h is other host memory.
//   cudaMemcpyAsync d2+512 p1+0 256 1 s1
//   launch 12 1 256 s1                          blocks in x and y, threads; the kernel is not named
//   cublasLtMatmulAlgoGetHeuristic <product> bias mask, bytes of workspace, reductions
//   cublasLtMatmul <product> bias mask alpha beta A B D workspace, its bytes, stream
// A <product> is its compute type, transpose A, transpose B, epilogue, leading dimension of the mask; type, rows,
// columns and leading dimension of A, B and D; the alignments of A, B, C and D that were asked for; the number of
// products, and from one to the next A, B, D and the bias.
// Only calls that succeed or find unfinished work are recorded. Of equal queries in a row one is: a host that waits
// asks more or less often.
// Threads: a recording belongs to the thread that made it; calls of others are not recorded.
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/support/emulated_cublas_lt.h"

namespace hadal::testing {

class ApiRecording {
 public:
  // From now on the thread's calls are recorded.
  ApiRecording();
  ~ApiRecording();
  ApiRecording(const ApiRecording&) = delete;
  ApiRecording& operator=(const ApiRecording&) = delete;

  const std::string& text() const { return text_; }

  // The recording that the calling thread has; null: none.
  static ApiRecording* OfThisThread();

  class Argument {
   public:
    Argument(std::integral auto number) : number_(number) {}
    Argument(cudaStream_t stream) : kind_('s'), object_(stream) {}
    Argument(cudaEvent_t event) : kind_('e'), object_(event) {}
    Argument(cudaGraph_t graph) : kind_('g'), object_(graph) {}
    Argument(cudaGraphExec_t graph) : kind_('x'), object_(graph) {}
    Argument(const void* memory) : kind_('m'), object_(memory) {}

   private:
    friend class ApiRecording;
    char kind_ = 'n';
    int64_t number_ = 0;
    const void* object_ = nullptr;
  };
  void Note(const std::string& function, std::initializer_list<Argument> arguments);
  // A call that makes an object or ends its life; `bytes`: of memory, 'd' or 'p'.
  void NoteMaking(const std::string& function, Argument made, std::initializer_list<Argument> arguments);
  void NoteAllocation(const std::string& function, char kind, const void* memory, int64_t bytes,
                      std::initializer_list<Argument> arguments);
  void NoteEnd(const std::string& function, Argument ended);

 private:
  struct Memory {
    std::string name;
    int64_t bytes = 0;
  };
  std::string Text(const Argument& argument) const;

  std::string text_;
  std::map<char, int> made_;  // objects of each kind
  std::map<std::pair<char, const void*>, std::string> names_;
  std::map<const std::byte*, Memory> memory_;
  std::set<std::string> queries_;  // since the last other call
};

// For cuBLASLt (CublasLtSurroundings): notes a search or a product in this thread's recording, if it has one.
void NoteSearch(const CublasLtProblem& problem, const CublasLtPreference& preference);
void NoteProduct(const CublasLtProblem& problem, const uint32_t* alignments, const CublasLtOperands& operands,
                 const void* workspace, uint64_t workspace_bytes, cudaStream_t stream);

}  // namespace hadal::testing
