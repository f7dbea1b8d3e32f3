#include "tools/metrics/progress.h"

#include <cctype>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/metrics/progress_line.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

StepMetrics Step(int64_t step) {
  return {.step = step,
          .total_steps = 1000,
          .loss = 4.321,
          .perplexity = 75.2,
          .learning_rate = 4.9e-4,
          .gradient_norm = 1.234,
          .target_tokens = 4096,
          .tokens_per_second = 12345,
          .step_seconds = 0.5,
          .elapsed_seconds = 0.5 * static_cast<double>(step + 1),
          .eta_seconds = 200,
          .depth_gradient_norms = {1e-4f, 1e-3f, 1e-2f, 1e-1f}};
}

// What a terminal shows after these bytes: lines, colours dropped. Knows the escapes the sink uses.
std::vector<std::string> Screen(const std::string& bytes) {
  std::vector<std::string> lines(1);
  size_t row = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\n') {
      if (++row == lines.size()) lines.emplace_back();
    } else if (bytes[i] == '\033') {
      size_t end = i + 2;
      while (end < bytes.size() && !std::isalpha(static_cast<unsigned char>(bytes[end]))) ++end;
      if (bytes[end] == 'A') row -= std::stoul(bytes.substr(i + 2));
      if (bytes[end] == 'J') lines.resize(row), lines.emplace_back();
      i = end;
    } else if (bytes[i] != '\r') {
      lines[row] += bytes[i];
    }
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

class ProgressTest : public ::testing::Test {
 protected:
  Progress Make(TerminalStyle style) {
    return Progress(out_,
                    {.style = style, .columns = {}, .clock = [this] { return now_; }, .plain_interval_seconds = 10});
  }
  std::ostringstream out_;
  double now_ = 100;
};

constexpr char kLine[] =
    "step 2/1,000  0%  loss 4.321  ppl 75.20  lr 4.90e-04  gnorm 1.23  12.3k tok/s  ETA 3m20s  elapsed 1.0s";

TEST_F(ProgressTest, PlainLinesComeAtIntervalsAndAtTheEnd) {
  Progress progress = Make({});
  progress.OnStep(Step(0));
  now_ += 9;
  progress.OnStep(Step(1));  // too early
  now_ += 2;
  progress.OnStep(Step(1));
  progress.OnStep(Step(999));
  const std::vector<std::string> lines = Screen(out_.str());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], StartsWith("step 1/1,000"));
  EXPECT_EQ(lines[1], kLine);
  EXPECT_THAT(lines[2], StartsWith("step 1,000/1,000  100%"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("\033")));
}

TEST_F(ProgressTest, ATerminalShowsOneLineAndTheStrip) {
  Progress progress = Make({.live = true, .color = true, .columns = 120});
  progress.OnStart({.model = "DeepNorm", .encoder_sublayers = 2, .decoder_sublayers = 2});
  for (int64_t step = 0; step < 5; ++step, now_ += 1) progress.OnStep(Step(step));
  std::vector<std::string> lines = Screen(out_.str());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], StartsWith("step     5/1,000  ┄"));
  EXPECT_EQ(lines[2], "gnorm by depth 1e-04 ▁▃│▆█ 1e-01");
  EXPECT_THAT(out_.str(), HasSubstr("\033[36m▁▃\033[0m│"));

  progress.OnValidation(
      {.step = 5, .nll = 3, .perplexity = 20.1, .bleu = 12.34, .best = true, .sentences = 500, .seconds = 2});
  progress.OnText(5, TextKind::kWarning, "the disk is nearly full");
  progress.OnCheckpoint({.step = 4, .directory = "d", .seconds = 2, .stall_seconds = 0.25, .interval_seconds = 10});
  lines = Screen(out_.str());
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[1], "validation at step 5  nll 3.000  ppl 20.10  BLEU 12.3  best so far  500 sentences  in 2.0s");
  EXPECT_EQ(lines[2], "warning: the disk is nearly full");
  EXPECT_EQ(lines[3], "checkpoint of step 4 saved in 2.0 s: d (training waited 0.250 s, 2.5% of the interval)");
  EXPECT_THAT(lines[4], StartsWith("step"));
}

TEST_F(ProgressTest, RedrawsAtMostTenTimesASecond) {
  Progress progress = Make({.live = true, .columns = 120});
  progress.OnStep(Step(0));
  const size_t drawn = out_.str().size();
  now_ += 0.05;
  progress.OnStep(Step(1));
  EXPECT_EQ(out_.str().size(), drawn);
  now_ += 0.06;
  progress.OnStep(Step(2));
  EXPECT_GT(out_.str().size(), drawn);
}

TEST_F(ProgressTest, NeverWrapsAndLosesTheLeastImportantFirst) {
  for (int columns = 1; columns < 140; ++columns) {
    out_.str("");
    Progress progress = Make({.live = true, .columns = columns});
    progress.OnStep(Step(0));
    for (const std::string& line : Screen(out_.str())) EXPECT_LT(DisplayWidth(line), columns) << line;
  }
  EXPECT_EQ(LayOutLine(StepSegments(Step(1), {.live = true}), 46, false), "step     2/1,000  loss 4.321  ETA 3m20s");
}

TEST_F(ProgressTest, SaysInWordsWhatIsNotFinite) {
  Progress progress = Make({});
  StepMetrics step = Step(0);
  step.loss = NAN;
  step.perplexity = INFINITY;
  step.gradient_norm = NAN;
  step.learning_rate = NAN;
  step.tokens_per_second = NAN;
  step.eta_seconds = NAN;
  step.skipped = true;
  step.depth_gradient_norms = {NAN, INFINITY};
  progress.OnStep(step);
  progress.OnValidation({.step = 1, .nll = NAN, .perplexity = INFINITY});
  progress.OnFinish("diverged");
  EXPECT_THAT(out_.str(), HasSubstr("loss not a number"));
  EXPECT_THAT(out_.str(), HasSubstr("update skipped"));
  EXPECT_THAT(out_.str(), HasSubstr("1 update skipped: the gradient was not finite"));
  for (const char* nonsense : {"nan", "inf ", "-nan", "inf\n"}) EXPECT_THAT(out_.str(), Not(HasSubstr(nonsense)));
}

TEST_F(ProgressTest, EndsWithASummary) {
  Progress progress = Make({});
  progress.OnStart(
      {.run_directory = "runs/deep", .model = "DeepNorm 2L-2L", .parameters = 1234567, .stages = 2, .first_step = 7});
  progress.OnStep(Step(0));
  progress.OnStep(Step(1));
  progress.OnValidation({.step = 2, .nll = 3, .perplexity = 20.1, .bleu = 12.34, .best = true});
  progress.OnValidation({.step = 3, .nll = 4, .perplexity = 54.6, .bleu = 11});
  progress.OnFinish("stopped");
  const std::vector<std::string> lines = Screen(out_.str());
  EXPECT_EQ(lines[0], "DeepNorm 2L-2L, 1,234,567 parameters, 1 rank of 1 thread, 2 pipeline stages");
  EXPECT_EQ(lines[1], "resuming at step 7");
  ASSERT_GE(lines.size(), 4u);
  const std::vector<std::string> end(lines.end() - 4, lines.end());
  EXPECT_THAT(end, ElementsAre("stopped: 2 steps, 8,192 target tokens in 1.0s (8.19k tok/s while training)",
                               "best validation nll 3.000 (ppl 20.10) at step 2", "last BLEU 11.0 at step 3",
                               "run directory runs/deep"));
}

}  // namespace
}  // namespace hadal
