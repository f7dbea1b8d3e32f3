// The output of `hadal simulate`: text, JSON and a timeline.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/choose_rows.h"
#include "tools/plan/simulate.h"

namespace hadal {
namespace {

constexpr int kColumns = 96;
constexpr int kMostRows = 16;

std::string Seconds(double seconds) {
  return seconds < 10 ? absl::StrFormat("%.3f ms", 1e3 * seconds) : absl::StrFormat("%.3f s", seconds);
}

// One row; each column shows the span that fills most of it.
std::string DrawRow(const std::vector<ComputeSpan>& spans, double makespan) {
  std::vector<double> forward(kColumns, 0.0), backward(kColumns, 0.0);
  for (const ComputeSpan& span : spans) {
    std::vector<double>& filled = span.instruction.operation == Operation::kForward ? forward : backward;
    const double begin = span.begin_seconds / makespan * kColumns, end = span.end_seconds / makespan * kColumns;
    for (int c = static_cast<int>(begin); c < kColumns && c < end; ++c) {
      filled[c] += std::max(0.0, std::min(end, c + 1.0) - std::max(begin, static_cast<double>(c)));
    }
  }
  std::string row;
  for (int c = 0; c < kColumns; ++c) {
    const double idle = 1 - forward[c] - backward[c];
    row += idle >= forward[c] && idle >= backward[c] ? '.' : forward[c] >= backward[c] ? 'F' : 'B';
  }
  return row;
}

std::optional<double> Formula(const Simulation& simulation) {
  return AnalyticBubbleFraction(simulation.options.kind, simulation.options.shape);
}

double Largest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

std::string Percent(double part, double whole) {
  return absl::StrFormat("%5.1f%%", whole > 0 ? 100 * part / whole : 0);
}

void AppendBreakdown(const Simulation& simulation, std::string& text) {
  const StepBreakdown& parts = simulation.result.breakdown;
  const double step = simulation.step_seconds;
  const auto line = [&](const char* name, double seconds, const std::string& note) {
    absl::StrAppendFormat(&text, "  %-10s %14s  %s  %s\n", name, Seconds(seconds), Percent(seconds, step), note);
  };
  absl::StrAppendFormat(&text, "step %s; the busiest rank (%d) needs %s of it\n", Seconds(step),
                        simulation.busiest_rank, Seconds(simulation.bound_seconds));
  line("compute", parts.compute_seconds, "mean over the ranks");
  if (parts.host_seconds > 0)
    line("host", parts.host_seconds, "waits of devices for their hosts: after messages, or for launches");
  const std::optional<double> formula = Formula(simulation);
  line("bubble", parts.bubble_seconds,
       formula
           ? absl::StrFormat("fill and drain of the schedule; the formula says %.1f%% of the makespan", 100 * *formula)
           : std::string("fill and drain of the schedule; no formula for this shape"));
  line("imbalance", parts.imbalance_seconds, "chunks of unequal cost, slow ranks");
  line("links", parts.link_seconds, "latency and bandwidth");
  line("tail", simulation.options.tail_seconds, "optimizer and the rest of a step's end");
}

}  // namespace

std::string SimulationToText(const Simulation& simulation) {
  const ScheduleShape& shape = simulation.options.shape;
  const Replay& replay = simulation.result.replay;
  std::string text = absl::StrFormat("%s, %d stages x %d chunks, %d micro-batches\n", ToString(simulation.options.kind),
                                     shape.stages, shape.chunks, shape.micro_batches);
  if (replay.makespan_seconds > 0) {
    const int width = static_cast<int>(absl::StrCat(shape.stages - 1).size());
    for (const int rank : ChooseRows(shape.stages, kMostRows)) {
      absl::StrAppendFormat(&text, "rank %*d  %s\n", width, rank, DrawRow(replay.spans[rank], replay.makespan_seconds));
    }
    if (shape.stages > kMostRows) absl::StrAppend(&text, "(", kMostRows, " of ", shape.stages, " ranks drawn)\n");
  }
  AppendBreakdown(simulation, text);
  absl::StrAppendFormat(
      &text,
      "idle %.1f%% of the ranks' time before the tail; blocked on a full ring at most %s per rank; busiest link %s\n",
      100 * replay.BubbleFraction(), Seconds(Largest(replay.blocked_seconds)),
      absl::StrCat(Percent(Largest(replay.link_busy_seconds), replay.makespan_seconds), " of the makespan"));
  if (const double traced = simulation.options.traced_seconds; traced > 0) {
    absl::StrAppendFormat(&text, "the traced step took %s: the replay differs by %+.1f%%\n", Seconds(traced),
                          100 * (replay.makespan_seconds / traced - 1));
  }
  return text;
}

std::string SimulationToJson(const Simulation& simulation) {
  const ScheduleShape& shape = simulation.options.shape;
  const StepBreakdown& parts = simulation.result.breakdown;
  const Replay& replay = simulation.result.replay;
  nlohmann::ordered_json json{{"schedule", ToString(simulation.options.kind)},
                              {"ranks", shape.stages},
                              {"chunks", shape.chunks},
                              {"micro_batches", shape.micro_batches},
                              {"step_seconds", simulation.step_seconds},
                              {"bound_seconds", simulation.bound_seconds},
                              {"busiest_rank", simulation.busiest_rank},
                              {"compute_seconds", parts.compute_seconds},
                              {"host_seconds", parts.host_seconds},
                              {"bubble_seconds", parts.bubble_seconds},
                              {"imbalance_seconds", parts.imbalance_seconds},
                              {"link_seconds", parts.link_seconds},
                              {"tail_seconds", simulation.options.tail_seconds},
                              {"idle_share", replay.BubbleFraction()}};
  if (simulation.options.traced_seconds > 0) json["traced_seconds"] = simulation.options.traced_seconds;
  json["makespan_seconds"] = replay.makespan_seconds;
  if (const std::optional<double> formula = Formula(simulation)) json["formula_bubble_share"] = *formula;
  json["busy_seconds"] = replay.busy_seconds;
  json["blocked_seconds"] = replay.blocked_seconds;
  json["link_busy_seconds"] = replay.link_busy_seconds;
  return json.dump(2) + "\n";
}

nlohmann::ordered_json TimelineToJson(const Simulation& simulation) {
  const ScheduleShape& shape = simulation.options.shape;
  const Replay& replay = simulation.result.replay;
  nlohmann::ordered_json json{{"kinds", nlohmann::ordered_json::array({"forward", "backward"})},
                              {"end_seconds", replay.makespan_seconds}};
  for (int rank = 0; rank < shape.stages; ++rank) {
    nlohmann::ordered_json spans = nlohmann::ordered_json::array();
    for (const ComputeSpan& span : replay.spans[rank]) {
      const bool forward = span.instruction.operation == Operation::kForward;
      std::string label = absl::StrCat(forward ? "F" : "B", span.instruction.micro_batch);
      if (shape.chunks > 1) absl::StrAppend(&label, ":", span.instruction.chunk);
      spans.push_back(
          nlohmann::ordered_json::array({span.begin_seconds, span.end_seconds, forward ? 0 : 1, std::move(label)}));
    }
    json["rows"].push_back({{"name", absl::StrCat("rank ", rank)}, {"spans", std::move(spans)}});
  }
  return json;
}

}  // namespace hadal
