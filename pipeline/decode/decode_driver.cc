#include "pipeline/decode/decode_driver.h"

#include <utility>

namespace hadal {
namespace {

std::vector<int32_t> RowsOf(std::span<const std::vector<int32_t>> sources) {
  std::vector<int32_t> rows;
  for (const std::vector<int32_t>& source : sources) rows.push_back(static_cast<int32_t>(source.size()));
  return rows;
}

}  // namespace

DecodeDriver::DecodeDriver(const DecodeCapacity& capacity, const BeamOptions& beam, int64_t max_positions,
                           std::span<const std::vector<int32_t>> sources,
                           std::span<std::vector<Hypothesis>> translations, std::span<const OutputStart> starts)
    : sources_(sources), starts_(starts), translations_(translations), queue_(RowsOf(sources), capacity, beam) {
  for (int32_t lane = 0; lane < capacity.lanes; ++lane) groups_.emplace_back(capacity, beam, max_positions, lane);
}

void DecodeDriver::Settle(std::vector<DecodeGroup::Left>& left) {
  for (DecodeGroup::Left& sentence : left) {
    if (sentence.finished) {
      translations_[sentence.sentence] = std::move(sentence.hypotheses);
    } else {
      queue_.PutBack(sentence.sentence);
    }
  }
}

std::vector<DecodeCommand> DecodeDriver::Next(int32_t lane) {
  DecodeGroup& group = groups_[lane];
  std::vector<DecodeCommand> commands;
  if (group.idle()) {
    if (queue_.empty()) return commands;
    commands.push_back(group.Start(queue_.Next(), sources_, starts_));
  }
  std::vector<DecodeGroup::Left> left;
  commands.push_back(group.Step(left));
  Settle(left);
  return commands;
}

void DecodeDriver::Advance(int32_t lane, const CandidateTable& table) {
  std::vector<DecodeGroup::Left> left;
  groups_[lane].Advance(table, left);
  Settle(left);
}

}  // namespace hadal
