#include "tools/report/trace_timeline.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/output/trace_reader.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

enum Kind : int { kForward, kRecompute, kBackward, kBackwardWeight, kWait, kUpdate };
constexpr const char* kKindNames[] = {"forward",          "recompute", "backward",
                                      "backward weights", "wait",      "sums, norm, optimizer"};

// The kind of a slice in the timeline; nullopt: not drawn.
std::optional<Kind> KindOf(const Json& event) {
  const std::string category = event.value("cat", ""), name = event.value("name", "");
  if (category == "forward") return kForward;
  if (category == "recompute") return kRecompute;
  if (category == "backward") return kBackward;
  if (category == "backward weights") return kBackwardWeight;
  if (absl::StartsWith(name, "wait")) return kWait;
  if (category == "global norm" || category == "optimizer" || absl::StrContains(category, "tied") ||
      absl::StrContains(category, "replicas")) {
    return kUpdate;
  }
  return std::nullopt;
}

TimelineSpan SpanOf(const Json& event, Kind kind) {
  const double begin = 1e-6 * event.value("ts", 0.0);
  const int64_t micro_batch = event.at("args").value("micro_batch", int64_t{-1});
  const char* letter = kind == kForward          ? "F"
                       : kind == kBackward       ? "B"
                       : kind == kBackwardWeight ? "W"
                       : kind == kRecompute      ? "R"
                                                 : "";
  return {.begin_seconds = begin,
          .end_seconds = begin + 1e-6 * event.value("dur", 0.0),
          .kind = kind,
          .label = micro_batch >= 0 && *letter != '\0' ? absl::StrCat(letter, micro_batch) : ""};
}

// Removes recomputations from the backwards that contain them, so that spans do not overlap.
std::vector<TimelineSpan> CutOut(std::vector<TimelineSpan> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const TimelineSpan& a, const TimelineSpan& b) {
    return std::pair(a.begin_seconds, -a.end_seconds) < std::pair(b.begin_seconds, -b.end_seconds);
  });
  std::vector<TimelineSpan> flat;
  for (const TimelineSpan& span : spans) {
    std::optional<TimelineSpan> rest;
    if (!flat.empty() && flat.back().kind == kBackward && span.kind == kRecompute &&
        flat.back().end_seconds > span.begin_seconds) {
      rest = flat.back();
      rest->begin_seconds = span.end_seconds;
      flat.back().end_seconds = span.begin_seconds;
    }
    flat.push_back(span);
    if (rest) flat.push_back(*rest);
  }
  std::erase_if(flat, [](const TimelineSpan& span) { return span.end_seconds <= span.begin_seconds; });
  return flat;
}

// Throws Json::exception if a field does not have the type that trace_writer.h writes.
absl::StatusOr<TracedStep> ReadTimeline(const std::string& json) {
  std::set<int64_t> steps;
  HADAL_ASSIGN_OR_RETURN(const Json rest, VisitTraceEvents(json, [&](const Json& event) {
                           if (event.value("cat", "") != "step") return;
                           steps.insert(event.at("args").value("step", int64_t{0}));
                         }));
  if (steps.empty()) return absl::NotFoundError("the trace has no complete step; train with --trace steps=A-B");
  const int64_t step = *std::next(steps.begin(), static_cast<int64_t>(steps.size() / 2));  // the middle one
  TracedStep traced{.step = step, .timeline = {.kinds = {std::begin(kKindNames), std::end(kKindNames)}}};
  if (rest.contains("otherData")) {
    traced.clock_error_seconds = 1e-6 * rest["otherData"].value("clock_error_us", 0.0);
  }
  std::map<int, std::vector<TimelineSpan>> rows;
  double origin = std::numeric_limits<double>::infinity();
  const auto add = [&](const Json& event) {
    if (event.value("ph", "") != "X" || event.at("args").value("step", int64_t{-1}) != step) return;
    if (event.value("cat", "") == "step") origin = std::min(origin, 1e-6 * event.value("ts", 0.0));
    if (const std::optional<Kind> kind = KindOf(event)) rows[event.value("pid", 0)].push_back(SpanOf(event, *kind));
  };
  HADAL_RETURN_IF_ERROR(VisitTraceEvents(json, add).status());
  for (auto& [rank, spans] : rows) {
    traced.timeline.row_names.push_back(absl::StrCat("rank ", rank));
    for (TimelineSpan& span : spans) {
      span.begin_seconds -= origin;
      span.end_seconds -= origin;
      traced.timeline.end_seconds = std::max(traced.timeline.end_seconds, span.end_seconds);
    }
    traced.timeline.spans.push_back(CutOut(std::move(spans)));
  }
  return traced;
}

}  // namespace

absl::StatusOr<TracedStep> TimelineFromTrace(const std::string& json) {
  try {
    return ReadTimeline(json);
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat("the trace cannot be read: ", error.what()));
  }
}

}  // namespace hadal
