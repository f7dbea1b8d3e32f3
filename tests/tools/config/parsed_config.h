// A config from its text, for tests.
#pragma once

#include <string>

#include "gtest/gtest.h"
#include "tools/config/config_loading.h"

namespace hadal {

inline config::RunConfig Parsed(const std::string& text) {
  config::RunConfig config;
  const absl::Status status = MergeConfigText(text, "run.textproto", config);
  EXPECT_TRUE(status.ok()) << status;
  return config;
}

}  // namespace hadal
