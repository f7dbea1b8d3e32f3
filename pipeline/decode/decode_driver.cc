#include "pipeline/decode/decode_driver.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "layers/incremental_sublayer.h"
#include "runtime/check.h"

namespace hadal {

DecodeGroup::DecodeGroup(const DecodeCapacity& capacity, const BeamOptions& options, int64_t max_positions,
                         int32_t lane)
    : options_(options),
      max_positions_(max_positions),
      lane_(lane),
      cache_rows_(capacity.cache_rows),
      seen_(capacity.cache_rows, 0) {
  free_.reserve(capacity.cache_rows);
}

DecodeCommand DecodeGroup::Start(std::span<const int32_t> sentences, std::span<const std::vector<int32_t>> sources,
                                 std::span<const OutputStart> starts) {
  HADAL_CHECK(idle());
  DecodeCommand command{.kind = DecodeCommand::Kind::kEncode, .lane = lane_, .source_offsets = {0}};
  for (const int32_t s : sentences) {
    const std::vector<int32_t>& source = sources[s];
    const auto rows = static_cast<int64_t>(source.size());
    members_.push_back(
        {.sentence = s,
         .index = static_cast<int32_t>(members_.size()),
         .first_source_row = 1 + command.source_offsets.back(),
         .source_rows = static_cast<int32_t>(rows),
         .search = BeamSearch(options_, LongestTranslation(options_, rows, max_positions_),
                              starts.empty() ? OutputStart{.number = static_cast<uint32_t>(s)} : starts[s]),
         .paths = {{}}});
    command.source.insert(command.source.end(), source.begin(), source.end());
    command.source_offsets.push_back(static_cast<int32_t>(command.source.size()));
  }
  const auto memory = static_cast<int64_t>(command.source.size());
  HADAL_CHECK_LT(memory, cache_rows_);
  free_.clear();
  for (auto row = static_cast<int32_t>(cache_rows_ - 1); row > memory; --row) free_.push_back(row);
  return command;
}

bool DecodeGroup::WantsLogits() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.search.wants_logits(); });
}

int64_t DecodeGroup::LiveRows() const {
  int64_t rows = 0;
  for (const Member& member : members_) rows += static_cast<int64_t>(member.search.live().size());
  return rows;
}

void DecodeGroup::FreeMemory(const Member& member) {
  for (int32_t r = 0; r < member.source_rows; ++r) free_.push_back(member.first_source_row + r);
}

void DecodeGroup::PutBackLast(std::vector<Left>& left) {
  HADAL_CHECK_GT(members_.size(), size_t{1});
  Member& member = members_.back();
  ++walk_;
  for (const std::vector<int32_t>& path : member.paths) {
    for (const int32_t row : path) {
      if (std::exchange(seen_[row], walk_) != walk_) free_.push_back(row);
    }
  }
  FreeMemory(member);
  left.push_back({.sentence = member.sentence, .finished = false});
  members_.pop_back();
}

DecodeCommand DecodeGroup::Step(std::vector<Left>& left) {
  HADAL_CHECK(!idle());
  while (LiveRows() > static_cast<int64_t>(free_.size())) PutBackLast(left);
  DecodeCommand command{.kind = DecodeCommand::Kind::kStep, .lane = lane_};
  for (Member& member : members_) {
    const int32_t parents = member.first_row;
    member.first_row = static_cast<int32_t>(command.rows.size());
    const std::vector<BeamSearch::Live>& live = member.search.live();
    for (size_t h = 0; h < live.size(); ++h) {
      const int32_t cache_row = free_.back();
      free_.pop_back();
      member.paths[h].push_back(cache_row);
      command.rows.push_back({.token = live[h].token,
                              .position = static_cast<int32_t>(member.search.length()),
                              .parent = parents + live[h].parent,
                              .cache_row = cache_row,
                              .sentence = member.index});
    }
  }
  return command;
}

void DecodeGroup::FollowPaths(Member& member) {
  std::vector<std::vector<int32_t>> paths;
  ++walk_;
  for (const BeamSearch::Live& live : member.search.live()) {
    paths.push_back(member.paths[live.parent]);
    for (const int32_t row : paths.back()) seen_[row] = walk_;
  }
  for (const std::vector<int32_t>& path : member.paths) {
    for (const int32_t row : path) {
      if (std::exchange(seen_[row], walk_) != walk_) free_.push_back(row);
    }
  }
  member.paths = std::move(paths);
}

void DecodeGroup::Advance(const CandidateTable& table, std::vector<Left>& left) {
  std::vector<Continuations> continuations;
  for (Member& member : members_) {
    continuations.clear();
    for (size_t h = 0; h < member.search.live().size(); ++h) {
      const auto row = static_cast<int64_t>(member.first_row + h);
      const auto count = static_cast<size_t>(table.tokens.columns);
      continuations.push_back(
          {{table.tokens.row(row), count}, {table.log_probabilities.row(row), count}, table.end[row]});
      if (table.logits.empty()) continue;
      continuations.back().logits = {table.logits.row(row), static_cast<size_t>(table.logits.columns)};
    }
    member.search.Advance(continuations);
    FollowPaths(member);
    if (!member.search.done()) continue;
    FreeMemory(member);
    left.push_back({.sentence = member.sentence, .finished = true, .hypotheses = member.search.Finished()});
  }
  std::erase_if(members_, [](const Member& member) { return member.search.done(); });
}

DecodeQueue::DecodeQueue(std::vector<int32_t> source_rows, const DecodeCapacity& capacity, const BeamOptions& beam)
    : source_rows_(std::move(source_rows)), capacity_(capacity), beam_(beam.beam), samples_(beam.sampling) {
  const auto sentences = static_cast<int64_t>(source_rows_.size());
  // Few sentences are spread over the lanes, but not so thinly that a step's time is that of reading the weights.
  const int64_t share = (sentences + capacity.lanes - 1) / capacity.lanes;
  most_sentences_ = std::clamp<int64_t>(share, std::min<int64_t>(capacity.sentences, kFewestDecodeRows / beam_ + 1),
                                        capacity.sentences);
  waiting_.resize(sentences);
  std::iota(waiting_.begin(), waiting_.end(), 0);
  std::ranges::stable_sort(waiting_, {}, [this](int32_t s) { return -source_rows_[s]; });
}

int64_t DecodeQueue::ExpectedRows(int32_t sentence) const {
  const int64_t source = source_rows_[sentence];
  const int64_t longest = capacity_.longest_path;
  const int64_t path = source == 0 ? longest : std::min(source + source / 2 + 8, longest);
  return source + (samples_ ? beam_ * path : std::min(path + 6 * beam_, beam_ * longest));
}

std::vector<int32_t> DecodeQueue::Next() {
  HADAL_CHECK(!empty());
  std::vector<int32_t> group;
  int64_t source_rows = 0, cache_rows = 1;
  while (!waiting_.empty() && static_cast<int64_t>(group.size()) < most_sentences_) {
    const int32_t next = waiting_.front();
    source_rows += source_rows_[next];
    cache_rows += ExpectedRows(next);
    const bool fits = source_rows <= capacity_.source_rows && cache_rows <= capacity_.cache_rows;
    if (!fits && !group.empty()) break;
    group.push_back(next);
    waiting_.pop_front();
  }
  return group;
}

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
