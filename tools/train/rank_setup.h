// RankSetup: the facts about one rank that all ranks of a training run compare before it begins.
//
// Every rank fills its RankSetup without communication, even after an error; then all ranks gather all records once
// (train_start.h). AgreeOnSettings is a pure function of the records, so every rank returns the same result. It checks
// in this order and returns the first difference, with the ranks and hosts that have it:
//   program          the executable file: another version may send other messages, and only `rank` of its RankSetup
//                    can be read
//   own error        RankSetup::error of a rank
//   command, config  e.g. a config file on a node's local disk that would train another model there
//   corpora          a rank would train on other sentences or other token ids
//   device           only some ranks can use a GPU, or the requested device is impossible
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/instruction_set.h"
#include "launch/device_choice.h"
#include "pipeline/options/train_options.h"
#include "runtime/data/corpus.h"
#include "runtime/rank_facts.h"

namespace hadal {

// Identifies a rank's copy of a corpus.
struct CorpusFacts {
  std::string contents;  // one line per file: name, size and checksum; empty: the run has no such corpus
  std::string files;     // device and inode numbers: equal if two processes of a host read the same files
};
CorpusFacts FactsOf(const std::string& prefix, const Corpus& corpus);

struct RankSetup {
  RankFacts rank;
  absl::Status error;       // from reading config, corpora or run directory; if set, the fields below may be empty
  std::string command;      // the command line options that must be equal on all ranks
  std::string config_text;  // the resolved config
  CorpusFacts train, validation;
  DeviceFacts device;
  // Rank 0's decisions for all ranks; empty on the others.
  std::string plan;           // ModelPlan::Serialize
  bool relu_masks = true;     // ModelPlan::relu_masks, for bf16
  int sum_groups = 1;         // BatchOptions::sum_groups (resume.h)
  std::string resume;         // effective --resume of this attempt (resume.h)
  int64_t applied_step = -1;  // AppliedStep (resume.h); -1: none
  std::string predecessor;    // the attempt that last owned the run directory; empty: none
};

// Pack serialises the record; Unpack is the inverse. If another version of the program has packed the bytes, Unpack
// may fill only `rank`. Errors: Internal if the bytes are not a record.
std::string Pack(const RankSetup& facts);
absl::StatusOr<RankSetup> Unpack(std::string_view bytes);

// The settings of command line and config that AgreeOnSettings resolves.
struct RequestedSettings {
  DeviceRequest device;
  TrainingPrecision precision = TrainingPrecision::kAuto;
  Transport transport = Transport::kAuto;
};

// Settings that all ranks use.
struct CommonSettings {
  InstructionSets instruction_sets = 0;
  // [ranks] Whether a rank must verify all bytes of its corpora. Usually the ranks of a host verify one part each
  // (CorpusShare); ranks with copies of their own, e.g. in containers, cannot rely on each other.
  std::vector<bool> reads_all;
  bool gpu = false;
  Storage compute_storage = Storage::kFloat32;
  bool nccl = false;
  std::vector<std::string> notices;  // for the user
};

// Compares all ranks and returns the common settings. `ranks`: in rank order, not empty. `request`: of this rank; used
// only after commands and configs were found equal.
// Errors: a rank's RankSetup::error, its message preceded by the ranks that have it unless all have; Internal if the
// ranks have no instruction set in common or only some can use a GPU; InvalidArgument for the other differences.
absl::StatusOr<CommonSettings> AgreeOnSettings(std::span<const RankSetup> ranks, const RequestedSettings& request);

}  // namespace hadal
