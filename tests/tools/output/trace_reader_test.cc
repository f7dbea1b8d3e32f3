#include "tools/output/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace hadal {
namespace {

using nlohmann::json;

TEST(TraceEvents, AreSeenOneAfterTheOtherAndNotKept) {
  const std::string text = R"({"displayTimeUnit":"ms","otherData":{"ranks":2,"list":[1,[2],{"traceEvents":[3]}]},
      "traceEvents":[{"ph":"X","args":{"step":-1,"deep":[true,null,{"a":1.5}]}},7,[8],{}],"after":"x"})";
  std::vector<json> events;
  const auto rest = VisitTraceEvents(text, [&](const json& event) { events.push_back(event); });
  ASSERT_TRUE(rest.ok()) << rest.status();
  json whole = json::parse(text);
  EXPECT_EQ(json(events), whole["traceEvents"]);
  whole["traceEvents"] = json::array();
  EXPECT_EQ(*rest, whole);
}

TEST(TraceEvents, WhatIsNoTraceIsRefused) {
  for (const char* wrong :
       {"", "[]", "7", "{}", R"({"traceEvents":7})", R"({"traceEvents":[1,})", R"([{"traceEvents":[]}])"}) {
    EXPECT_EQ(VisitTraceEvents(wrong, [](const json&) {}).status().code(), absl::StatusCode::kDataLoss) << wrong;
  }
}

}  // namespace
}  // namespace hadal
