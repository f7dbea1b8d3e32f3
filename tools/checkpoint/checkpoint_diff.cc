#include "tools/checkpoint/checkpoint_command.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/status_macros.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

// The difference of one kind of state of one parameter.
struct Difference {
  std::string what;  // "weight" | "adam_m" | "adam_v" | "muon_m", and the parameter's name
  int64_t elements = 0;
  int64_t different = 0;
  int64_t not_finite = 0;  // elements not finite in A or B, left out of the measures
  double max_abs = 0;
  double sum_of_squares = 0;    // of a - b
  double squares_of_first = 0;  // of a

  double relative() const {
    if (not_finite > 0) return std::numeric_limits<double>::infinity();
    return squares_of_first > 0 ? std::sqrt(sum_of_squares / squares_of_first)
                                : std::numeric_limits<double>::infinity();
  }
};

void Compare(const std::vector<float>& a, const std::vector<float>& b, Difference& difference) {
  difference.elements += static_cast<int64_t>(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const double delta = static_cast<double>(a[i]) - b[i];
    difference.different += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]);
    if (!std::isfinite(delta)) {
      ++difference.not_finite;
      continue;
    }
    difference.max_abs = std::max(difference.max_abs, std::abs(delta));
    difference.sum_of_squares += delta * delta;
    difference.squares_of_first += static_cast<double>(a[i]) * a[i];
  }
}

absl::Status ReadSlice(CheckpointReader& reader, StateKind kind, int32_t parameter, int64_t slice,
                       std::vector<float>& values) {
  values.resize(static_cast<size_t>(reader.manifest().parameters[parameter].slice_elements(slice)));
  const Vector view(values.data(), static_cast<int64_t>(values.size()));
  SliceState state = {.parameter = parameter, .slice = slice, .weight = {}, .first_moment = {}, .second_moment = {}};
  (kind == StateKind::kWeight        ? state.weight
   : kind == StateKind::kFirstMoment ? state.first_moment
                                     : state.second_moment) = view;
  return reader.ReadSlices({&state, 1});
}

absl::StatusOr<Difference> CompareParameter(CheckpointReader& a, CheckpointReader& b, StateKind kind,
                                            int32_t parameter) {
  const CheckpointParameter& description = a.manifest().parameters[parameter];
  Difference difference;
  const std::string key = StateKey(kind, description.name, 0);
  difference.what = key.substr(0, key.rfind('/'));
  const bool of_muon = kind == StateKind::kFirstMoment && !a.Holds(StateKind::kSecondMoment, parameter, 0);
  if (of_muon) difference.what.replace(0, difference.what.find('/'), "muon_m");
  std::vector<float> first, second;
  for (int64_t slice = 0; slice < description.slices(); ++slice) {
    HADAL_RETURN_IF_ERROR(ReadSlice(a, kind, parameter, slice, first));
    HADAL_RETURN_IF_ERROR(ReadSlice(b, kind, parameter, slice, second));
    Compare(first, second, difference);
  }
  return difference;
}

void PrintDifferences(std::vector<Difference> differences, int64_t lines, std::ostream& out) {
  std::ranges::stable_sort(differences, {}, [](const Difference& difference) { return -difference.relative(); });
  const size_t shown = lines == 0 ? differences.size() : std::min(differences.size(), static_cast<size_t>(lines));
  for (size_t i = 0; i < shown; ++i) {
    const Difference& difference = differences[i];
    out << absl::StrFormat("%s: %d of %d elements differ, max |d| %.3g, relative %.3g", difference.what,
                           difference.different, difference.elements, difference.max_abs, difference.relative());
    if (difference.not_finite > 0) out << absl::StrFormat(", %d not finite", difference.not_finite);
    out << "\n";
  }
  if (shown < differences.size()) out << "… and " << differences.size() - shown << " more (--lines 0 prints all)\n";
}

}  // namespace

absl::StatusOr<bool> DiffCheckpoints(const std::string& a, const std::string& b, const CheckpointDiffOptions& options,
                                     std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(CheckpointReader first, OpenCheckpoint(a));
  HADAL_ASSIGN_OR_RETURN(CheckpointReader second, OpenCheckpoint(b));
  const TrainingProgress& at = first.manifest().progress;
  const TrainingProgress& other = second.manifest().progress;
  if (at.step != other.step || at.update != other.update) {
    out << absl::StrFormat("note: A is of step %d, update %d, B of step %d, update %d\n", at.step, at.update,
                           other.step, other.update);
  }
  if (absl::Status same = CompareParameters(first.manifest().parameters, second.manifest().parameters); !same.ok()) {
    out << "different models (A as checkpoint, B as model): " << std::string(same.message()) << "\n";
    return false;
  }
  const bool moments = first.manifest().has_moments && second.manifest().has_moments && !options.weights_only;
  const bool one_lacks_moments = first.manifest().has_moments != second.manifest().has_moments && !options.weights_only;
  if (one_lacks_moments) {
    out << (first.manifest().has_moments ? "B" : "A") << " has weights only; use --weights-only to ignore moments\n";
  }
  const bool one_is_muons = moments && first.manifest().muon != second.manifest().muon;
  if (one_is_muons) {
    out << (first.manifest().muon ? "A" : "B")
        << " has Muon's momentum, the other Adam's moments; use --weights-only to ignore them\n";
  }
  std::vector<Difference> differences;
  int64_t elements = 0;
  std::optional<WorkProgress> progress(std::in_place, "comparing", "parameters",
                                       std::ssize(first.manifest().parameters));
  for (int32_t p = 0; p < static_cast<int32_t>(first.manifest().parameters.size()); ++p) {
    progress->Advance(1);
    for (const StateKind kind : kStateKinds) {
      if (kind != StateKind::kWeight && (!moments || one_is_muons)) continue;
      if (!first.Holds(kind, p, 0)) continue;  // the second moment of a matrix of Muon's
      HADAL_ASSIGN_OR_RETURN(Difference difference, CompareParameter(first, second, kind, p));
      elements += difference.elements;
      if (difference.different > 0) differences.push_back(std::move(difference));
    }
  }
  progress.reset();
  if (differences.empty() && !one_lacks_moments && !one_is_muons) {
    out << absl::StrFormat("identical: %d parameters, %d elements%s\n", first.manifest().parameters.size(), elements,
                           moments ? ", moments included" : ", weights only");
    return true;
  }
  const size_t count = differences.size();
  PrintDifferences(std::move(differences), options.lines, out);
  out << absl::StrFormat("different: %d tensors of %d parameters\n", count, first.manifest().parameters.size());
  return false;
}

}  // namespace hadal
