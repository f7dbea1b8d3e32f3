// A timeline: what each rank did when, of a traced step or a replayed schedule. pyhadal draws its JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace hadal {

struct TimelineSpan {
  double begin_seconds = 0;
  double end_seconds = 0;
  int kind = 0;       // index in Timeline::kinds
  std::string label;  // "F3", or ""
};

struct Timeline {
  std::vector<std::string> kinds;                // names of the kinds of spans: "forward", …
  std::vector<std::string> row_names;            // [rows]
  std::vector<std::vector<TimelineSpan>> spans;  // [rows] in order of time, not overlapping
  double end_seconds = 0;                        // of the axis
};

// {"kinds": [name …], "end_seconds": t, "rows": [{"name": …, "spans": [[begin, end, kind, label] …]} …]}
nlohmann::ordered_json TimelineToJson(const Timeline& timeline);

}  // namespace hadal
