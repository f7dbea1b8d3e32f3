// What each rank of a training run knows before the run begins, and the one comparison of it.
//
// Every rank fills its record by itself, also if it has failed, and all ranks gather all records once (train_start.h).
// CompareStarts then gives the same result on every rank, so that they all go on or all fail alike. Each of its errors
// names the first difference, in this order, and the ranks and hosts that have it:
//   program          other programs exchange other messages; nothing else of their records is read
//   own error        of reading the config, the corpora or the run directory
//   command, config  a config on one node's own disk would silently train another model there
//   corpora          a rank would silently train on other sentences, or on other ids for them
//   device           some ranks have none; what is asked for is impossible
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/instruction_set.h"
#include "launch/job/device_choice.h"
#include "pipeline/plan/train_options.h"
#include "runtime/data/corpus.h"
#include "runtime/rank_facts.h"

namespace hadal {

// What a rank has under a corpus's name.
struct CorpusFacts {
  std::string contents;  // one line a file: name, size and checksum; empty: the run has no such corpus
  std::string place;     // which files of its host: equal for two processes that see the same ones
};
CorpusFacts FactsOf(const std::string& prefix, const Corpus& corpus);

struct StartFacts {
  RankFacts rank;
  absl::Status error;   // of reading config, corpora, and what the run directory says; the fields below may be empty
  std::string command;  // the words of the command line that all ranks must have
  std::string config_text;  // resolved
  CorpusFacts train, validation;
  DeviceFacts device;
  // What rank 0 decides for all.
  std::string plan;        // ModelPlan::Serialize
  bool relu_masks = true;  // ModelPlan::relu_masks, for bf16
  std::string resume;      // --resume, as it applies to this start (resume_request.h)
};

std::string Pack(const StartFacts& facts);
// Of a rank with another program only `rank` is read.  Errors: Internal.
absl::StatusOr<StartFacts> Unpack(std::string_view bytes);

// What is asked for, in the command and config that all ranks have.
struct StartRequest {
  DeviceRequest device;
  TrainingPrecision precision = TrainingPrecision::kAuto;
  Transport transport = Transport::kAuto;
};

// What all ranks do.
struct CommonStart {
  InstructionSets instruction_sets = 0;
  // Whether a rank must read every byte of its corpora. Ranks of a host share the reading (CorpusShare), but where two
  // of them have different files, e.g. in containers, what one has read does not verify the other's.
  std::vector<bool> reads_all;
  bool gpu = false;
  Storage compute_storage = Storage::kFloat32;
  bool nccl = false;
  std::vector<std::string> notices;  // for the user
};

// `ranks`: in rank order, at least one. `request`: this rank's, which is only looked at once all ranks are known to
// have the same command and config.
// Errors: as above, InvalidArgument but for the ranks' own; FailedPrecondition if no instruction set is common, or if
// only some ranks can use a GPU.
absl::StatusOr<CommonStart> CompareStarts(std::span<const StartFacts> ranks, const StartRequest& request);

}  // namespace hadal
