#include "tools/timeline.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace hadal {

nlohmann::ordered_json TimelineToJson(const Timeline& timeline) {
  nlohmann::ordered_json json{{"kinds", timeline.kinds}, {"end_seconds", timeline.end_seconds}};
  json["rows"] = nlohmann::ordered_json::array();
  for (size_t row = 0; row < timeline.spans.size(); ++row) {
    nlohmann::ordered_json spans = nlohmann::ordered_json::array();
    for (const TimelineSpan& span : timeline.spans[row]) {
      spans.push_back(nlohmann::ordered_json::array({span.begin_seconds, span.end_seconds, span.kind, span.label}));
    }
    json["rows"].push_back({{"name", timeline.row_names[row]}, {"spans", std::move(spans)}});
  }
  return json;
}

}  // namespace hadal
