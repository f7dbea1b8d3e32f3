#include "tests/support/chrome_trace_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

using Json = nlohmann::json;
using TrackId = std::pair<int, int>;  // pid, tid

// Whole nanoseconds, so that comparisons are exact.
int64_t Nanoseconds(const Json& event, const char* key) { return std::llround(event.at(key).get<double>() * 1e3); }

struct Slice {
  int64_t begin = 0, end = 0;
  std::string name;
};

struct Ends {
  std::vector<Json> begins, ends;
};

class Check {
 public:
  std::vector<std::string> Run(const Json& trace) {
    for (const Json& event : trace.at("traceEvents")) Take(event);
    for (auto& [track, slices] : slices_) CheckNesting(track, slices);
    const int64_t slack = std::llround(1e3 * trace.at("otherData").at("clock_error_us").get<double>()) * 2 + 2;
    for (const auto& [id, arrow] : arrows_) CheckArrow(id, arrow, slack);
    for (const auto& [id, bar] : bars_) {
      if (bar.begins.size() != 1 || bar.ends.size() != 1)
        Fault("bar ", id, " has not exactly two ends");
      else if (Nanoseconds(bar.begins[0], "ts") > Nanoseconds(bar.ends[0], "ts"))
        Fault("bar ", id, " ends before it begins");
    }
    if (slices_.empty()) Fault("there are no slices");
    return std::move(faults_);
  }

 private:
  template <typename... Parts>
  void Fault(const Parts&... parts) {
    faults_.push_back(absl::StrCat(parts...));
  }

  void Take(const Json& event) {
    const std::string phase = event.at("ph");
    if (phase == "M") return;
    const TrackId track{event.at("pid"), event.at("tid")};
    if (phase == "X") {
      const int64_t begin = Nanoseconds(event, "ts"), length = Nanoseconds(event, "dur");
      const std::string name = event.at("name");
      if (begin < 0) Fault("\"", name, "\" begins before 0");
      if (length < 0) Fault("\"", name, "\" has a negative duration");
      slices_[track].push_back({begin, begin + length, name});
    } else if (phase == "s" || phase == "f") {
      (phase == "s" ? arrows_[event.at("id")].begins : arrows_[event.at("id")].ends).push_back(event);
    } else if (phase == "b" || phase == "e") {
      if (!event.contains("id2")) return Fault("\"", event.at("name").get<std::string>(), "\" is no bar of a process");
      Ends& bar = bars_[event.at("id2").at("local")];
      (phase == "b" ? bar.begins : bar.ends).push_back(event);
    } else {
      Fault("unknown phase ", phase);
    }
  }

  void CheckNesting(const TrackId& track, std::vector<Slice>& slices) {
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end);
    });
    std::vector<Slice> open;
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
      if (!open.empty() && open.back().end < slice.end) {
        Fault("process ", track.first, ", track ", track.second, ": \"", slice.name, "\" sticks out of \"",
              open.back().name, "\"");
      }
      open.push_back(slice);
    }
  }

  // The last slice to begin of those that contain an arrow's end; null: none.
  const Slice* SliceOf(const Json& end) const {
    const auto found = slices_.find({end.at("pid"), end.at("tid")});
    const int64_t at = Nanoseconds(end, "ts");
    const Slice* last = nullptr;
    if (found == slices_.end()) return last;
    for (const Slice& slice : found->second) {
      const bool contains = slice.begin <= at && at <= slice.end;
      if (contains && (last == nullptr || slice.begin >= last->begin)) last = &slice;
    }
    return last;
  }

  void CheckArrow(int64_t id, const Ends& arrow, int64_t slack) {
    if (arrow.begins.size() != 1 || arrow.ends.size() != 1) return Fault("arrow ", id, " has not exactly two ends");
    const int64_t begin = Nanoseconds(arrow.begins[0], "ts");
    const Slice* const last = SliceOf(arrow.ends[0]);
    if (SliceOf(arrow.begins[0]) == nullptr) Fault("arrow ", id, " begins outside every slice");
    if (last == nullptr) Fault("arrow ", id, " ends outside every slice");
    if (Nanoseconds(arrow.ends[0], "ts") + slack < begin) {
      Fault("arrow ", id, " points back in time");
    } else if (last != nullptr && last->begin + slack < begin) {
      Fault("arrow ", id, " ends in a slice that begins before the arrow: \"", last->name, "\"");
    }
  }

  std::vector<std::string> faults_;
  std::map<TrackId, std::vector<Slice>> slices_;
  std::map<int64_t, Ends> arrows_;
  std::map<std::string, Ends> bars_;
};

}  // namespace

std::vector<std::string> TraceFaults(const std::string& json) {
  const Json trace = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (trace.is_discarded()) return {"not JSON"};
  return Check().Run(trace);
}

}  // namespace hadal
