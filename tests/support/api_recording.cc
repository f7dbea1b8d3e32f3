#include "tests/support/api_recording.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace hadal::testing {
namespace {

thread_local ApiRecording* of_this_thread = nullptr;

std::string ProductText(const CublasLtProblem& problem, const uint32_t* alignments) {
  const CublasLtDescription& of = problem.description;
  std::string text =
      absl::StrCat(static_cast<int>(of.compute), " ", static_cast<int>(of.transpose_a), " ",
                   static_cast<int>(of.transpose_b), " ", static_cast<int>(of.epilogue), " ", of.mask_leading);
  for (const CublasLtLayout& layout : {problem.a, problem.b, problem.d}) {
    absl::StrAppend(&text, " ", static_cast<int>(layout.type), " ", layout.rows, " ", layout.columns, " ",
                    layout.leading);
  }
  for (int i = 0; i < 4; ++i) absl::StrAppend(&text, " ", alignments[i]);
  absl::StrAppend(&text, " ", problem.d.count, " ", problem.a.step, " ", problem.b.step, " ", problem.d.step, " ",
                  of.bias_step);
  return text;
}

}  // namespace

ApiRecording::ApiRecording() {
  HADAL_CHECK(of_this_thread == nullptr);
  of_this_thread = this;
}

ApiRecording::~ApiRecording() { of_this_thread = nullptr; }

ApiRecording* ApiRecording::OfThisThread() { return of_this_thread; }

std::string ApiRecording::Text(const Argument& argument) const {
  if (argument.kind_ == 'n') return absl::StrCat(argument.number_);
  if (argument.kind_ != 'm') {
    const auto found = names_.find({argument.kind_, argument.object_});
    HADAL_CHECK(found != names_.end());  // another thread's
    return found->second;
  }
  const auto* const at = static_cast<const std::byte*>(argument.object_);
  const auto next = memory_.upper_bound(at);
  if (next == memory_.begin() || at >= std::prev(next)->first + std::prev(next)->second.bytes) return "h";
  return absl::StrCat(std::prev(next)->second.name, "+", at - std::prev(next)->first);
}

void ApiRecording::Note(const std::string& function, std::initializer_list<Argument> arguments) {
  std::string line = function;
  for (const Argument& argument : arguments) absl::StrAppend(&line, " ", Text(argument));
  if (!absl::EndsWith(function, "Query")) {
    queries_.clear();
  } else if (!queries_.insert(line).second) {
    return;
  }
  absl::StrAppend(&text_, line, "\n");
}

void ApiRecording::NoteMaking(const std::string& function, Argument made, std::initializer_list<Argument> arguments) {
  const std::string name = absl::StrCat(std::string(1, made.kind_), ++made_[made.kind_]);
  names_[{made.kind_, made.object_}] = name;
  Note(absl::StrCat(function, " ", name), arguments);
}

void ApiRecording::NoteAllocation(const std::string& function, char kind, const void* memory, int64_t bytes,
                                  std::initializer_list<Argument> arguments) {
  const std::string name = absl::StrCat(std::string(1, kind), ++made_[kind]);
  memory_[static_cast<const std::byte*>(memory)] = {name, bytes};
  Note(absl::StrCat(function, " ", name, " ", bytes), arguments);
}

void ApiRecording::NoteEnd(const std::string& function, Argument ended) {
  Note(function, {ended});
  names_.erase({ended.kind_, ended.object_});
  memory_.erase(static_cast<const std::byte*>(ended.object_));
}

void NoteSearch(const CublasLtProblem& problem, const CublasLtPreference& preference) {
  if (of_this_thread == nullptr) return;
  of_this_thread->Note(
      "cublasLtMatmulAlgoGetHeuristic " + ProductText(problem, preference.alignment),
      {problem.description.bias, problem.description.mask, preference.workspace_bytes, preference.reductions});
}

void NoteProduct(const CublasLtProblem& problem, const uint32_t* alignments, const CublasLtOperands& operands,
                 const void* workspace, uint64_t workspace_bytes, cudaStream_t stream) {
  if (of_this_thread == nullptr) return;
  of_this_thread->Note(
      "cublasLtMatmul " + ProductText(problem, alignments),
      {problem.description.bias, problem.description.mask, static_cast<int>(operands.alpha),
       static_cast<int>(operands.beta), operands.a, operands.b, operands.d, workspace, workspace_bytes, stream});
}

}  // namespace hadal::testing
