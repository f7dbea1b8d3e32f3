#include "pipeline/layout/recompute_plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "layers/chunk_part.h"

namespace hadal {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// As Chunk::PlaceParts divides what a part saves.
struct SavedSizes {
  int64_t kept = 0, input = 0;
  SavedSizes operator+(const SavedSizes& other) const { return {kept + other.kept, input + other.input}; }
  SavedSizes operator-(const SavedSizes& other) const { return {kept - other.kept, input - other.input}; }
};

// One of the shortest segments.
struct Piece {
  int32_t first = 0, end = 0;
  SavedSizes saved;
  std::optional<SavedSizes> joint;  // more if it is in one segment with the piece in front
  int64_t input_bytes = 0;          // of all slots, of the tensor in front of it; 0 if that is kept anyway
  double cost = 0;
};

// Adds the segments of one chunk of a rank to a graph.
class GraphMaker {
 public:
  GraphMaker(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, int chunk, RecomputeGraph& graph)
      : plan_(plan),
        pipeline_(pipeline),
        slots_(pipeline.peak_live[rank][chunk]),
        input_slots_(pipeline.peak_input[rank][chunk]),
        splits_(pipeline.pending_slots(rank, chunk) > 0),
        graph_(graph) {}

  // Of sublayers [first, last), which are of one stack.
  void Add(int32_t first, int32_t last) {
    const std::vector<Piece> pieces = Pieces(first, last);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      const int32_t node = static_cast<int32_t>(graph_.steps.size()), behind_kept = i + 1 < pieces.size() ? 3 : 2;
      const int64_t kept = AllSlots(piece.saved);
      std::vector<RecomputeStep> steps{{.to = node + behind_kept, .bytes = kept + piece.input_bytes}};
      AddRecomputed(pieces, i, node, steps);
      graph_.sublayers.push_back(piece.first);
      graph_.steps.push_back(steps);
      if (piece.joint) steps.front().bytes = kept + AllSlots(*piece.joint);
      graph_.steps.push_back(std::move(steps));
    }
  }

 private:
  SavedSizes Sizes(int32_t first, int32_t last) const {
    const std::unique_ptr<ChunkPart> part = MakeSegment(plan_, first, last, pipeline_.capacity);
    const int64_t input = splits_ ? part->saved_input_bytes() : 0;
    return {part->saved_bytes() - input, input};
  }
  int64_t AllSlots(const SavedSizes& sizes) const { return slots_ * sizes.kept + input_slots_ * sizes.input; }

  std::vector<Piece> Pieces(int32_t first, int32_t last) const {
    const Stack stack = plan_.sublayers[first].stack;
    std::vector<Piece> pieces;
    for (int32_t at = first; at < last; at = pieces.back().end) {
      Piece piece{.first = at, .end = plan_.SegmentEnd(at, 1, last)};
      piece.saved = Sizes(at, piece.end);
      for (int32_t s = at; s < piece.end; ++s) piece.cost += pipeline_.costs[s];
      const bool reads_history = plan_.Combines(stack) || (plan_.ReadsBlocks(stack) && plan_.OpenSublayers(at) == 0);
      if (at > first && !reads_history) {
        const int64_t row_bytes = plan_.options.d_model * BytesOf(plan_.segment_storage(stack, at));
        piece.input_bytes = slots_ * plan_.ResidualsBefore(at) * pipeline_.capacity.rows(stack) * row_bytes;
        const Piece& before = pieces.back();
        if (plan_.SegmentEnd(before.first, piece.end - before.first, last) == piece.end) {
          piece.joint = Sizes(before.first, piece.end) - before.saved - piece.saved;
        }
      }
      pieces.push_back(piece);
    }
    return pieces;
  }

  // Those that begin with pieces[i].
  void AddRecomputed(const std::vector<Piece>& pieces, size_t i, int32_t node,
                     std::vector<RecomputeStep>& steps) const {
    const int32_t last = pieces.back().end;
    const bool combines = plan_.Combines(plan_.sublayers[pieces[i].first].stack);
    RecomputeStep step{.bytes = pieces[i].input_bytes};
    size_t j = i;
    for (const int32_t length : kSegmentLengths) {
      const int32_t end = plan_.SegmentEnd(pieces[i].first, combines ? 1 : length, last);
      if (j > i && pieces[j - 1].end == end) continue;  // as a shorter length
      for (; j < pieces.size() && pieces[j].first < end; ++j) {
        const SavedSizes saved = pieces[j].saved + (j > i && pieces[j].joint ? *pieces[j].joint : SavedSizes());
        (splits_ ? step.bytes : step.buffer_bytes) += saved.kept;
        step.buffer_bytes += saved.input;
        step.cost += pieces[j].cost;
      }
      step.to = node + 2 * static_cast<int32_t>(j - i);
      step.length = length;
      steps.push_back(step);
    }
  }

  const ModelPlan& plan_;
  const PipelineLayout& pipeline_;
  const int64_t slots_, input_slots_;
  const bool splits_;
  RecomputeGraph& graph_;
};

// The way from a node to the last one with the least value.
struct Rest {
  double value = 0, cost = 0;
  int64_t bytes = 0;
  const RecomputeStep* step = nullptr;  // the first
};

// A way to a node.
struct Label {
  double cost = 0;
  int64_t bytes = 0;
  int32_t from = -1, index = 0;  // the node and its label in front of the last step
  int32_t length = 0;            // of that step
};

// The plans whose recomputed segments need at most `buffer_bytes` of the buffer.
struct Problem {
  const RecomputeGraph* graph;
  int64_t buffer_bytes = 0;
  int64_t limit_bytes = 0;  // for the others
  double price = 0;         // of a byte
  double lower_bound = 0;
  std::vector<Rest> fewest = {};    // from each node, with the fewest bytes
  std::vector<Rest> cheapest = {};  // from each node, with the least cost + price·bytes
  std::vector<Rest> small = {},
                    large = {};  // the same at neighbouring prices: small fits, large is cheaper and does not

  // Into memory that is reused.
  void Rests(double of_cost, double of_byte, std::vector<Rest>& rests) const;
  void Append(size_t node, const RecomputeStep& step, std::vector<RecomputeRun>& runs) const {
    runs.push_back({graph->sublayers[node / 2], step.length});
  }
  // The best plan that fits of those that begin as one of `small` and `large` and continue as the other.
  RecomputeChoice Cross() const;
  // Begins with `cheapest` if there is a price.  REQUIRES: some plan fits, and keeping all does not.
  void FindPrice();
  void Bound() {
    Rests(1, price, cheapest);
    lower_bound = cheapest.front().value - price * static_cast<double>(limit_bytes);
  }
  // Returns the labels of the nodes on ways with a cost below `enough`, the last node's ascending by cost. Clears
  // `exact` if not all were followed.
  std::vector<std::vector<Label>> Follow(double enough, bool& exact) const;
};

void Problem::Rests(double of_cost, double of_byte, std::vector<Rest>& rests) const {
  rests.resize(graph->steps.size());
  for (size_t node = rests.size() - 1; node-- > 0;) {
    rests[node].value = kUnbounded;
    for (const RecomputeStep& step : graph->steps[node]) {
      if (step.buffer_bytes > buffer_bytes) break;
      const Rest& rest = rests[step.to];
      const double value = of_cost * step.cost + of_byte * static_cast<double>(step.bytes) + rest.value;
      if (value < rests[node].value) rests[node] = {value, step.cost + rest.cost, step.bytes + rest.bytes, &step};
    }
  }
}

void Problem::FindPrice() {
  constexpr double kTie = 1e-9;  // relative
  Rests(1, 0, large);
  small = fewest;
  for (;;) {
    if (price > 0) std::swap(cheapest.front().bytes <= limit_bytes ? small : large, cheapest);
    const Rest &most = large.front(), &least = small.front();
    price = (least.cost - most.cost) / static_cast<double>(most.bytes - least.bytes);
    Bound();
    if (cheapest.front().value >= (least.cost + price * static_cast<double>(least.bytes)) * (1 - kTie)) return;
  }
}

RecomputeChoice Problem::Cross() const {
  RecomputeChoice best{.cost = kUnbounded};
  for (const auto& [front, behind] : {std::pair(&large, &small), std::pair(&small, &large)}) {
    RecomputeChoice way;
    for (size_t node = 0;; node = (*front)[node].step->to) {
      const Rest& rest = (*behind)[node];
      if (way.bytes + rest.bytes <= limit_bytes && way.cost + rest.cost < best.cost) {
        best = {way.runs, way.cost + rest.cost, lower_bound, way.bytes + rest.bytes + buffer_bytes};
        for (size_t n = node; n + 1 < behind->size(); n = (*behind)[n].step->to)
          Append(n, *(*behind)[n].step, best.runs);
      }
      if (node + 1 >= front->size()) break;
      const RecomputeStep& step = *(*front)[node].step;
      way.cost += step.cost;
      way.bytes += step.bytes;
      Append(node, step, way.runs);
    }
  }
  return best;
}

// Keeps the labels that no other excels, ascending by cost; of many, some at even distances.
bool Thin(size_t most, std::vector<Label>& labels) {
  std::ranges::sort(labels, {}, [](const Label& label) { return std::tie(label.cost, label.bytes); });
  size_t kept = 0;
  for (const Label& label : labels) {
    if (kept == 0 || label.bytes < labels[kept - 1].bytes) labels[kept++] = label;
  }
  labels.resize(kept);
  if (kept <= most) return false;
  for (size_t i = 0; i < most; ++i) labels[i] = labels[i * (kept - 1) / (most - 1)];
  labels.resize(most);
  return true;
}

std::vector<std::vector<Label>> Problem::Follow(double enough, bool& exact) const {
  constexpr size_t kMost = 4096;  // labels of a node
  std::vector<std::vector<Label>> labels(graph->steps.size());
  labels.front().emplace_back();
  for (size_t node = 0; node < labels.size(); ++node) {
    if (Thin(kMost, labels[node])) exact = false;
    for (size_t i = 0; i < labels[node].size(); ++i) {
      for (const RecomputeStep& step : graph->steps[node]) {
        if (step.buffer_bytes > buffer_bytes) break;
        const Label longer{labels[node][i].cost + step.cost, labels[node][i].bytes + step.bytes,
                           static_cast<int32_t>(node), static_cast<int32_t>(i), step.length};
        if (longer.bytes + fewest[step.to].bytes > limit_bytes) continue;
        const double rest = price * static_cast<double>(longer.bytes - limit_bytes) + cheapest[step.to].value;
        if (longer.cost + std::max(0.0, rest) < enough) labels[step.to].push_back(longer);
      }
    }
  }
  return labels;
}

// The problems with each size of the buffer for which some plan fits.
struct FittingProblems {
  const RecomputeGraph& graph;
  const int64_t limit_bytes;
  const double better;                          // a cost counts below better · the best one
  RecomputeChoice best = {.cost = kUnbounded};  // of Cross
  int64_t least;                                // the fewest bytes of any plan; known if no plan fits
  std::vector<Problem> problems = {};  // of ranges of sizes that cannot lower the best cost so far, only the bound
  Problem problem = {&graph};

  // Adds those with buffers [first, last]; a range is halved as long as its bound is less than the best cost.
  void Add(size_t first, size_t last) {
    problem.buffer_bytes = graph.buffers[last];
    problem.limit_bytes = limit_bytes - graph.buffers[first];
    if (problem.price > 0) problem.Bound();  // that of the buffer before
    if (problem.lower_bound >= better * best.cost) {
      problems.push_back({.graph = &graph, .lower_bound = problem.lower_bound});
    } else if (first < last) {
      Add(first, (first + last) / 2);
      Add((first + last) / 2 + 1, last);
    } else {
      problem.Rests(0, 1, problem.fewest);
      least = std::min(least, problem.buffer_bytes + problem.fewest.front().bytes);
      if (problem.fewest.front().bytes > problem.limit_bytes) return;
      problem.FindPrice();
      if (RecomputeChoice crossed = problem.Cross(); crossed.cost < best.cost) best = std::move(crossed);
      problems.push_back(problem);
    }
  }
};

// Of the last node's first label.
std::vector<RecomputeRun> RunsOf(const RecomputeGraph& graph, const std::vector<std::vector<Label>>& labels) {
  std::vector<RecomputeRun> runs;
  for (const Label* label = &labels.back().front(); label->from >= 0; label = &labels[label->from][label->index]) {
    runs.push_back({graph.sublayers[label->from / 2], label->length});
  }
  std::ranges::reverse(runs);
  return runs;
}

}  // namespace

ReplayCosts CostsOfChunks(const PipelineLayout& pipeline) {
  ReplayCosts costs;
  for (int g = 0; g < pipeline.shape.global_chunks(); ++g) {
    double forward = 0, recomputed = 0;
    for (int32_t s = pipeline.borders[g]; s < pipeline.borders[g + 1]; ++s) {
      forward += pipeline.costs[s];
      recomputed += pipeline.recomputed[s] ? pipeline.costs[s] : 0;
    }
    costs.forward_seconds.push_back(forward);
    costs.backward_seconds.push_back(2 * forward + recomputed);
    costs.weight_seconds.push_back(kWeightShare * 2 * forward);
  }
  return costs;
}

RecomputeGraph MakeRecomputeGraph(const ModelPlan& plan, const PipelineLayout& pipeline, int rank) {
  RecomputeGraph graph;
  for (int c = 0; c < pipeline.shape.chunks; ++c) {
    GraphMaker maker(plan, pipeline, rank, c, graph);
    const int32_t last = pipeline.last_sublayer(rank, c);
    for (int32_t begin = pipeline.first_sublayer(rank, c), end = begin; begin < last; begin = end) {
      const SublayerRecord& record = plan.sublayers[begin];
      while (end < last && plan.sublayers[end].stack == record.stack && plan.sublayers[end].layer >= 0) ++end;
      if (end > begin) maker.Add(begin, end);
      end = std::max(end, begin + 1);
    }
  }
  graph.steps.emplace_back();
  std::set<int64_t> buffers;
  for (const std::vector<RecomputeStep>& steps : graph.steps) {
    for (const RecomputeStep& step : steps) buffers.insert(step.buffer_bytes);
  }
  graph.buffers.assign(buffers.begin(), buffers.end());
  return graph;
}

RecomputeChoice ChooseRecompute(const RecomputeGraph& graph, int64_t limit_bytes) {
  std::vector<Rest> all_kept;
  Problem{&graph}.Rests(1, 0, all_kept);
  RecomputeChoice choice{.bytes = all_kept.front().bytes};
  if (graph.sublayers.empty()) return choice;
  choice.runs = {{.first = graph.sublayers.front()}};
  if (choice.bytes <= limit_bytes) return choice;
  // Of many segments, a plan that is hardly better is not looked for.
  const double better = std::ssize(graph.sublayers) > kExactSegments ? 1 / 1.01 : 1;
  FittingProblems fitting{.graph = graph, .limit_bytes = limit_bytes, .better = better, .least = choice.bytes};
  fitting.Add(0, graph.buffers.size() - 1);
  if (fitting.problems.empty()) {
    if (fitting.least < choice.bytes) choice = ChooseRecompute(graph, fitting.least);
    choice.lower_bound = kUnbounded;
    return choice;
  }
  std::vector<Problem>& problems = fitting.problems;
  std::ranges::sort(problems, {}, &Problem::lower_bound);
  choice = std::move(fitting.best);
  choice.lower_bound = kUnbounded;
  for (const Problem& problem : problems) {
    const double enough = better * choice.cost;
    if (problem.lower_bound >= enough) break;
    bool exact = true;
    const std::vector<std::vector<Label>> labels = problem.Follow(enough, exact);
    if (!exact) choice.lower_bound = std::min(choice.lower_bound, problem.lower_bound);
    if (labels.back().empty()) continue;
    const Label& cheapest = labels.back().front();
    choice = {RunsOf(graph, labels), cheapest.cost, choice.lower_bound, cheapest.bytes + problem.buffer_bytes};
  }
  choice.lower_bound = std::max(problems.front().lower_bound, std::min(choice.lower_bound, better * choice.cost));
  return choice;
}

}  // namespace hadal
