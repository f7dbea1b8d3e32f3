// Reads a trace (trace_json.h) an event at a time: a step of 64 ranks has half a million of them, and as one JSON value
// they would take ten times the file's bytes.
//
// Threads: pure. Memory: the largest event, and what stands beside the events.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

// Calls `visit` for each entry of "traceEvents", in order; returns the trace's object with that list empty.
// Errors: DataLoss when `json` is not an object with such a list. What `visit` throws passes through.
absl::StatusOr<nlohmann::json> VisitTraceEvents(const std::string& json,
                                                const std::function<void(const nlohmann::json&)>& visit);

}  // namespace hadal
