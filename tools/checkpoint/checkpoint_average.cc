#include "tools/checkpoint/checkpoint_command.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/model_settings.h"
#include "runtime/data/input_kind.h"
#include "runtime/status_macros.h"
#include "tools/checkpoint/weights_checkpoint.h"
#include "tools/output/staged_output.h"

namespace hadal {
namespace {

// Returns an error if an earlier reader reads the same checkpoint as the last one: by a link (latest and best are often
// the same), or a copy.
absl::Status CheckNew(const std::vector<CheckpointReader>& readers) {
  const CheckpointManifest& last = readers.back().manifest();
  for (size_t i = 0; i + 1 < readers.size(); ++i) {
    const CheckpointManifest& other = readers[i].manifest();
    if (other.attempt != last.attempt || other.progress.step != last.progress.step) continue;
    return InvalidArgumentError(readers[i].directory(), " and ", readers.back().directory(),
                                " are the same checkpoint, of step ", last.progress.step,
                                ", which would count twice; give each checkpoint once");
  }
  return absl::OkStatus();
}

// Whether both models compute the same from the same weights. Their initial values may differ.
bool SameArithmetic(const CheckpointReader& a, const CheckpointReader& b) {
  if (a.manifest().plan_hash == b.manifest().plan_hash) return true;
  std::optional<uint64_t> hash;
  for (const CheckpointReader* reader : {&a, &b}) {
    absl::StatusOr<ModelPlan> plan = PlanOfCheckpoint(reader->manifest(), reader->directory());
    if (!plan.ok()) return false;
    for (ParameterRecord& parameter : plan->parameters) parameter.init = {}, parameter.init_scale = 0;
    if (hash && plan->Hash() != *hash) return false;
    hash = plan->Hash();
  }
  return true;
}

absl::StatusOr<std::vector<CheckpointReader>> OpenAll(const std::vector<std::string>& inputs) {
  std::vector<CheckpointReader> readers;
  for (const std::string& input : inputs) {
    HADAL_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(input));
    readers.push_back(std::move(reader));
    const absl::Status same =
        CompareParameters(readers.back().manifest().parameters, readers.front().manifest().parameters);
    if (!same.ok()) return absl::Status(same.code(), absl::StrCat(input, ": ", same.message()));
    if (readers.back().manifest().attachments != readers.front().manifest().attachments) {
      return FailedPreconditionError(input, ": its vocabulary differs from that of ", inputs.front(),
                                     ", so the same ids mean other pieces; average checkpoints of one run");
    }
    if (!SameArithmetic(readers.front(), readers.back())) {
      return FailedPreconditionError(input, ": its model differs from that of ", inputs.front(),
                                     " in heads, norms or gains (`hadal config diff` of the runs), so the same weights "
                                     "compute something else; average checkpoints of one model");
    }
    const InputKind &inputs = readers.back().manifest().inputs, &first = readers.front().manifest().inputs;
    HADAL_RETURN_IF_ERROR(CheckTags(first, inputs.tags, input));
    HADAL_RETURN_IF_ERROR(CheckFeatureKind(first, inputs, input));
    HADAL_RETURN_IF_ERROR(CheckNew(readers));
  }
  return readers;
}

// The mean of one slice, in double, in the readers' order.
absl::Status MeanOfSlice(std::vector<CheckpointReader>& readers, const SliceState& state, std::vector<double>& sum) {
  sum.assign(static_cast<size_t>(state.weight.size), 0.0);
  for (CheckpointReader& reader : readers) {
    HADAL_RETURN_IF_ERROR(reader.ReadSlices({&state, 1}));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += state.weight.data[i];
  }
  const auto count = static_cast<double>(readers.size());
  for (size_t i = 0; i < sum.size(); ++i) state.weight.data[i] = static_cast<float>(sum[i] / count);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Attachment>> ReadAttachments(CheckpointReader& reader) {
  std::vector<Attachment> attachments;
  for (const AttachedFile& file : reader.manifest().attachments) {
    HADAL_ASSIGN_OR_RETURN(std::string contents, reader.ReadAttachment(file.name));
    attachments.push_back({.name = file.name, .contents = std::move(contents)});
  }
  return attachments;
}

// The checkpoint of the mean of all weights.
absl::StatusOr<WeightsCheckpoint> MeanOf(std::vector<CheckpointReader>& readers) {
  const auto step_of = [](const CheckpointReader& reader) { return reader.manifest().progress.step; };
  CheckpointReader& newest = *std::ranges::max_element(readers, {}, step_of);
  WeightsCheckpoint mean = {.manifest = newest.manifest(), .attachments = {}, .what = "averaging", .read = {}};
  mean.manifest.progress.validation_nll = std::numeric_limits<double>::infinity();
  HADAL_ASSIGN_OR_RETURN(mean.attachments, ReadAttachments(newest));
  mean.read = [&readers, sum = std::vector<double>()](const SliceState& state) mutable {
    return MeanOfSlice(readers, state, sum);
  };
  return mean;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SelectCheckpoints(const std::string& run_directory,
                                                           const CheckpointSelection& selection, std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(run_directory));
  struct Candidate {
    CheckpointEntry entry;
    double order = 0;  // the best has the least
  };
  // By another metric than the nll: the best that the run has kept.
  const absl::StatusOr<CheckpointReader> newest = OpenLatest(run_directory);
  const TrainingProgress progress = newest.ok() ? newest->manifest().progress : TrainingProgress();
  const bool by_nll = progress.validation_metric == "nll";
  std::vector<Candidate> candidates;
  for (const CheckpointEntry& entry : entries) {
    const absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(entry.directory);
    if (absl::IsNotFound(reader.status())) return reader.status();
    if (!reader.ok()) {
      out << "skipped " << entry.directory << ": " << reader.status().message() << "\n";
      continue;
    }
    const TrainingProgress& its = reader->manifest().progress;
    double order = its.validation_nll;
    // Another validation set's nll compares with none of the present one.
    if (its.validation_data.known() && its.validation_data != progress.validation_data) {
      order = std::numeric_limits<double>::infinity();
    }
    if (!by_nll) {
      const auto place = std::ranges::find(progress.best, entry.step, &ScoredStep::step);
      order = place == progress.best.end() ? std::numeric_limits<double>::infinity()
                                           : static_cast<double>(place - progress.best.begin());
    }
    if (selection.best == 0 || std::isfinite(order)) candidates.push_back({.entry = entry, .order = order});
  }
  const auto wanted = static_cast<size_t>(std::max(selection.last, selection.best));
  if (candidates.size() < wanted) {
    return FailedPreconditionError(absl::StrFormat(
        "%s has %d readable checkpoints%s, %d are needed; select fewer, or keep more (checkpoint.keep_last, keep_best)",
        run_directory, candidates.size(), selection.best > 0 ? " with a score of the present validation set" : "",
        wanted));
  }
  if (selection.best > 0) {
    std::ranges::stable_sort(candidates, {}, &Candidate::order);
    candidates.resize(wanted);
    std::ranges::sort(candidates, {}, [](const Candidate& candidate) { return candidate.entry.step; });
  }
  std::vector<std::string> directories;
  for (size_t i = candidates.size() - wanted; i < candidates.size(); ++i) {
    directories.push_back(candidates[i].entry.directory);
  }
  return directories;
}

absl::Status AverageCheckpoints(const std::vector<std::string>& inputs, const std::string& directory,
                                std::ostream& out) {
  HADAL_ASSIGN_OR_RETURN(const StagedOutput staged, StageNewFolder(directory));
  HADAL_ASSIGN_OR_RETURN(std::vector<CheckpointReader> readers, OpenAll(inputs));
  HADAL_ASSIGN_OR_RETURN(WeightsCheckpoint mean, MeanOf(readers));
  HADAL_RETURN_IF_ERROR(WriteWeightsCheckpoint(std::move(mean), staged, directory));
  out << "wrote " << directory << ", the mean of " << inputs.size() << " checkpoints:\n";
  for (const std::string& input : inputs) out << "  " << input << "\n";
  const auto seed_of = [](const CheckpointReader& reader) { return reader.manifest().progress.seed; };
  if (std::ranges::adjacent_find(readers, std::ranges::not_equal_to(), seed_of) != readers.end()) {
    out << "warning: these runs have different seeds; if they began from different weights, the mean is worse than "
           "each: compare them with `hadal score`\n";
  }
  return absl::OkStatus();
}

}  // namespace hadal
