// A config from its text, and the options that it makes, for tests.
#pragma once

#include "gtest/gtest.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"

namespace hadal {

inline config::RunConfig Parsed(const std::string& text) {
  config::RunConfig config;
  EXPECT_EQ(MergeConfigText(text, "run.textproto", config), absl::OkStatus());
  return config;
}

inline RunOptions OptionsOf(const std::string& text) { return MakeRunOptions(Parsed(text)).value(); }

}  // namespace hadal
