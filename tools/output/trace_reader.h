// Reads a trace (trace_writer.h) one event at a time. A step of 64 ranks has half a million events; parsed into one
// JSON value, the trace would take ten times its size in memory.
// Thread safety: any thread. Memory: the largest event, and everything outside the list of events.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

// Calls `visit` for each entry of "traceEvents", in order; returns the trace's object with that list empty.
// Errors: DataLoss if `json` is not an object with such a list. Does not catch exceptions of `visit`.
absl::StatusOr<nlohmann::json> VisitTraceEvents(const std::string& json,
                                                const std::function<void(const nlohmann::json&)>& visit);

}  // namespace hadal
