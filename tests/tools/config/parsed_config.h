// A config from its text, and the options that it makes, for tests.
#pragma once

#include <string>

#include "gtest/gtest.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"

namespace hadal {

inline config::RunConfig Parsed(const std::string& text) {
  config::RunConfig config;
  const absl::Status status = MergeConfigText(text, "run.textproto", config);
  EXPECT_TRUE(status.ok()) << status;
  return config;
}

inline RunOptions OptionsOf(const std::string& text) {
  auto options = MakeRunOptions(Parsed(text));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(RunOptions{});
}

}  // namespace hadal
