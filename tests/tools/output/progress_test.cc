#include "tools/output/progress.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

using ::testing::_;
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
          .elapsed_seconds = 0.5 * static_cast<double>(step),
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

TEST(ProgressLine, IsWholeWhereThereIsRoom) {
  const auto line = [](const StepMetrics& step, const TerminalStyle& style) {
    return LayOutLine(StepSegments(step, style), 300, false);
  };
  constexpr char kValues[] = "   50%  loss 4.321  ppl 75.20  lr 4.90e-04  gnorm 1.23   12.3k tok/s  ETA 3m20s";
  EXPECT_EQ(line(Step(500), {.live = true}), absl::StrCat("step   500/1,000  ━━━━━━━━┄┄┄┄┄┄┄┄", kValues));
  EXPECT_EQ(line(Step(500), {.live = true, .unicode = false}),
            absl::StrCat("step   500/1,000  ========........", kValues));
  EXPECT_THAT(line(Step(2000), {}), StartsWith("step 2,000/1,000  100%  loss"));
  EXPECT_THAT(line(Step(1000), {}), Not(HasSubstr("ETA"))) << "nothing is left";
  StepMetrics timed = Step(500);
  timed.eta_limit = "minutes";
  EXPECT_THAT(line(timed, {}), HasSubstr("ETA 3m20s (stop.minutes)")) << "not of the 1,000 steps";
  StepMetrics unlimited = Step(500);
  unlimited.total_steps = 0;
  unlimited.eta_seconds.reset();
  unlimited.skipped = true;
  EXPECT_EQ(line(unlimited, {.live = true}),
            "step 500  loss 4.321  ppl 75.20  lr 4.90e-04  gnorm 1.23   12.3k tok/s  update skipped");
}

// What a line loses, one after the other, as its room shrinks; its first part stays.
std::vector<std::string> Lost(const std::vector<LineSegment>& segments) {
  std::vector<std::string> lost;
  for (int columns = 300; columns > 0; --columns) {
    const std::string line = LayOutLine(segments, columns, false);
    for (size_t i = 1; i < segments.size(); ++i) {
      const std::string& name = segments[i].label.empty() ? segments[i].value : segments[i].label;
      if (line.find(name) == std::string::npos && std::ranges::find(lost, name) == lost.end()) lost.push_back(name);
    }
  }
  return lost;
}

TEST(ProgressLine, LosesTheLeastImportantFirst) {
  StepMetrics step = Step(500);
  step.skipped = true;
  EXPECT_THAT(
      Lost(StepSegments(step, {.live = true, .unicode = false})),
      ElementsAre("========........", " 50%", "gnorm", "lr", "12.3k tok/s", "ppl", "ETA", "update skipped", "loss"));
  EXPECT_THAT(Lost(StepSegments(step, {})),
              ElementsAre("elapsed", "50%", "gnorm", "lr", "12.3k tok/s", "ppl", "ETA", "update skipped", "loss"));
  EXPECT_THAT(Lost(ValidationSegments(
                  {.step = 5, .nll = 3, .scores = TranslationScores{.bleu = 12}, .best = true, .sentences = 500})),
              ElementsAre("CER", "WER", "chrF++", "500 sentences", "in", "ppl", "best so far", "BLEU", "nll"));
  const std::vector<LineSegment> segments = StepSegments(step, {});
  const std::string whole = LayOutLine(segments, 300, false);
  EXPECT_EQ(LayOutLine(segments, DisplayWidth(whole), false), whole);
  EXPECT_NE(LayOutLine(segments, DisplayWidth(whole) - 1, false), whole);
}

TEST(ProgressLine, IsCutBetweenCharactersAndPaintedWhereThereIsText) {
  EXPECT_EQ(CutToWidth("äöü", 2), "äö");
  EXPECT_EQ(CutToWidth("äöü", 3), "äöü");
  EXPECT_EQ(CutToWidth("a━b", 9), "a━b");
  EXPECT_EQ(CutToWidth("abc", 0), "");
  EXPECT_EQ(LayOutLine({{"step", "1,000", Ink::kBold, 0}}, 6, false), "step 1");
  EXPECT_EQ(LayOutLine({{"", "stepped", Ink::kBold, 0}}, 4, false), "step");
  EXPECT_EQ(Paint("x", Ink::kGood, true), "\033[32mx\033[0m");
  EXPECT_EQ(Paint("x", Ink::kPlain, true), "x");
  EXPECT_EQ(Paint("x", Ink::kGood, false), "x");
  EXPECT_EQ(Paint("", Ink::kGood, true), "");
}

TEST_F(ProgressTest, WarnsOnceOfThreadsThatWaitForCores) {
  for (const int threads : {1, 2}) {
    for (const double core_wait : {0.05, 0.2}) {
      out_.str("");
      Progress progress = Make({});
      progress.OnStart({.threads = threads});
      StepMetrics step = Step(1);
      step.stages = {{.forward_seconds = 0.2, .backward_seconds = 0.2, .core_wait_seconds = core_wait}};
      for (; step.step < 20; ++step.step) progress.OnStep(step);
      EXPECT_THAT(out_.str(), Not(HasSubstr("waiting for one"))) << "fewer than ten seconds";
      for (; step.step < 60; ++step.step) progress.OnStep(step);
      const auto warnings = absl::StrSplit(out_.str(), "50% of the computing time was spent waiting for one. Fewer ");
      EXPECT_EQ(std::distance(warnings.begin(), warnings.end()) - 1, threads > 1 && core_wait > 0.1 ? 1 : 0);
      EXPECT_EQ(out_.str().find("of the computing time") != std::string::npos, threads > 1 && core_wait > 0.1);
    }
  }
}

TEST_F(ProgressTest, SaysNothingOfCoresWithoutTimesByStage) {
  Progress progress = Make({});
  progress.OnStart({.threads = 2});
  for (int64_t i = 1; i <= 60; ++i) progress.OnStep(Step(i));
  EXPECT_THAT(out_.str(), Not(HasSubstr("waiting for one")));
  progress.OnCheckpoint({.step = 4, .directory = "d", .seconds = 3, .stall_seconds = 3, .interval_seconds = 2});
  EXPECT_THAT(out_.str(), HasSubstr("training waited 3.000 s, 100.0% of the interval"));
  progress.OnCheckpoint({.step = 5, .directory = "d", .seconds = 3});
  EXPECT_THAT(out_.str(), HasSubstr("training waited 0.000 s, 0.0% of the interval")) << "the first one";
  progress.OnValidation({.step = 60, .nll = 3, .perplexity = 20.1, .best = true, .by_nll = false});
  progress.OnFinish("all steps done");
  EXPECT_THAT(out_.str(), HasSubstr("last validation nll")) << "the best is of another metric";
}

TEST_F(ProgressTest, PlainLinesComeAtIntervalsAndAtTheEnd) {
  Progress progress = Make({});
  progress.OnStep(Step(1));
  now_ += 9;
  progress.OnStep(Step(2));  // too early
  now_ += 2;
  progress.OnStep(Step(2));
  progress.OnStep(Step(1000));
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
  for (int64_t step = 1; step <= 5; ++step, now_ += 1) progress.OnStep(Step(step));
  std::vector<std::string> lines = Screen(out_.str());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], StartsWith("step     5/1,000  ┄"));
  EXPECT_EQ(lines[2], "gnorm by depth 1e-04 ▁▃│▆█ 1e-01");
  EXPECT_THAT(out_.str(), HasSubstr("\033[36m▁▃\033[0m│"));

  progress.OnValidation({.step = 5,
                         .nll = 3,
                         .perplexity = 20.1,
                         .scores = TranslationScores{.bleu = 12.34},
                         .best = true,
                         .sentences = 500,
                         .seconds = 2});
  progress.OnText(5, TextKind::kWarning, "the disk\033[2J is nearly full");
  progress.OnCheckpoint({.step = 4, .in_memory = true});
  progress.OnCheckpoint({.step = 4, .directory = "d", .seconds = 2, .stall_seconds = 0.25, .interval_seconds = 10});
  lines = Screen(out_.str());
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[1],
            "validation at step 5  nll 3.000  ppl 20.10  BLEU 12.3  chrF++ 0.0  WER 0.0%  best so far  500 sentences  "
            "in 2.0s");
  EXPECT_EQ(lines[2], "warning: the disk\\x1b[2J is nearly full");
  EXPECT_EQ(lines[3], "checkpoint of step 4 saved in 2.0 s: d (training waited 0.250 s, 2.5% of the interval)");
  EXPECT_THAT(lines[4], StartsWith("step"));
}

TEST(CorpusLines, AreATableOfFewDirectionsAndTheMeansOfMany) {
  ValidationMetrics metrics{
      .corpora = {{.corpus = "en-de docs", .nll = 2, .scores = TranslationScores{.bleu = 10, .chrf = 40}},
                  {.corpus = "de-en", .nll = 4}}};
  EXPECT_THAT(CorpusLines(metrics),
              ElementsAre("  en-de docs  nll 2.000  BLEU 10.0  chrF++ 40.0", "  de-en       nll 4.000"));
  metrics.corpora.resize(20, metrics.corpora[0]);
  metrics.corpora[0].nll = 22;
  EXPECT_THAT(CorpusLines(metrics), ElementsAre("  means over 20 directions: nll 3.100, BLEU 10.0 of 19 of them"));
}

TEST_F(ProgressTest, APlainLogHasTheDepthUnderEachValidation) {
  Progress progress = Make({});
  progress.OnStart({.model = "DeepNorm", .encoder_sublayers = 2, .decoder_sublayers = 2});
  progress.OnValidation({.step = 0, .nll = 3, .perplexity = 20.1});
  EXPECT_THAT(Screen(out_.str()), ElementsAre(_, StartsWith("validation at step 0"))) << "nothing is known yet";
  progress.OnStep(Step(1));
  progress.OnValidation({.step = 1, .nll = 3, .perplexity = 20.1});
  const std::vector<std::string> lines = Screen(out_.str());
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[3], StartsWith("validation at step 1  nll 3.000  ppl 20.10"));
  EXPECT_EQ(lines[4], "gnorm by depth 1e-04 ▁▃│▆█ 1e-01");
}

TEST_F(ProgressTest, ANarrowTerminalsStripLosesItsNameAndThenGoes) {
  const auto strip = [&](int columns) {
    out_.str("");
    Progress progress = Make({.live = true, .columns = columns});
    progress.OnStep(Step(1));
    const std::vector<std::string> lines = Screen(out_.str());
    return lines.size() < 2 ? std::string() : lines[1];
  };
  EXPECT_EQ(strip(68), "gnorm by depth 1e-04 ▁▃▆█ 1e-01");
  EXPECT_EQ(strip(67), "1e-04 ▁▃▆█ 1e-01") << "fewer than 40 columns beside it";
  EXPECT_EQ(strip(21), "1e-04 ▁▃▆█ 1e-01");
  EXPECT_EQ(strip(20), "") << "fewer than 8";
}

TEST_F(ProgressTest, WithoutALastStepOnlyTimeSaysWhatIsShown) {
  Progress progress = Make({});
  StepMetrics step = Step(1);
  step.total_steps = 0;
  for (const double seconds : {0.0, 9.0, 1.0, 9.0}) {
    now_ += seconds;
    progress.OnStep(step);
    ++step.step;
  }
  EXPECT_THAT(Screen(out_.str()), ElementsAre(StartsWith("step 1 "), StartsWith("step 3 "))) << "10 seconds later";
}

TEST_F(ProgressTest, TheLastStepStandsOverTheSummary) {
  for (const bool live : {false, true}) {
    for (const double seconds : {0.01, 20.0}) {  // too early to be shown by itself, or not
      out_.str("");
      Progress progress = Make({.live = live, .columns = 160});
      progress.OnStep(Step(1));
      now_ += seconds;
      progress.OnStep(Step(2));
      progress.OnFinish("stopped");
      const std::vector<std::string> lines = Screen(out_.str());
      EXPECT_EQ(std::ranges::count_if(lines, [](const std::string& line) { return line.starts_with("step"); }),
                live ? 1 : 2);
      EXPECT_EQ(std::ranges::count_if(lines, [](const std::string& line) { return line.find("2/1,000") != line.npos; }),
                1);
      EXPECT_THAT(lines.back(), StartsWith("stopped: 2 steps")) << live << " " << seconds;
    }
  }
}

TEST_F(ProgressTest, ASummarySaysOnlyWhatThereWas) {
  Progress progress = Make({});
  StepMetrics step = Step(1);
  step.step_seconds = 0.25;
  step.skipped = true;
  progress.OnStep(step);
  progress.OnStep(step);
  progress.OnValidation({.step = 2, .nll = 3, .perplexity = 20.1});
  progress.OnFinish("stopped");
  for (const char* said : {"(16.4k tok/s while training)", "2 updates skipped: a gradient",
                           "last validation nll 3.000 (ppl 20.10) at step 2"}) {
    EXPECT_THAT(out_.str(), HasSubstr(said));
  }
  for (const char* unsaid : {"BLEU", "run directory", "best"}) EXPECT_THAT(out_.str(), Not(HasSubstr(unsaid)));
  out_.str("");
  Progress empty = Make({});
  empty.OnFinish("nothing to do");
  EXPECT_THAT(Screen(out_.str()), ElementsAre(StartsWith("nothing to do: 0 steps, 0 target tokens in")));
}

TEST_F(ProgressTest, RedrawsAtMostTenTimesASecond) {
  Progress progress = Make({.live = true, .columns = 120});
  progress.OnStep(Step(1));
  const size_t drawn = out_.str().size();
  now_ += 0.05;
  progress.OnStep(Step(2));
  EXPECT_EQ(out_.str().size(), drawn);
  now_ += 0.06;
  progress.OnStep(Step(3));
  EXPECT_GT(out_.str().size(), drawn);
}

TEST_F(ProgressTest, NeverWraps) {
  for (int columns = 1; columns < 140; ++columns) {
    out_.str("");
    Progress progress = Make({.live = true, .columns = columns});
    progress.OnStep(Step(1));
    for (const std::string& line : Screen(out_.str())) EXPECT_LT(DisplayWidth(line), columns) << line;
  }
}

TEST_F(ProgressTest, SaysInWordsWhatIsNotFinite) {
  Progress progress = Make({});
  StepMetrics step = Step(1);
  step.loss = step.gradient_norm = step.learning_rate = step.tokens_per_second = NAN;
  step.perplexity = INFINITY;
  step.eta_seconds = NAN;
  step.skipped = true;
  step.depth_gradient_norms = {NAN, INFINITY};
  progress.OnStep(step);
  progress.OnValidation({.step = 1, .nll = NAN, .perplexity = INFINITY});
  progress.OnFinish("diverged");
  EXPECT_THAT(out_.str(), HasSubstr("loss not a number"));
  EXPECT_THAT(out_.str(), HasSubstr("update skipped"));
  EXPECT_THAT(out_.str(), HasSubstr("1 update skipped: a gradient or loss that was not finite"));
  for (const char* nonsense : {"nan", "inf ", "-nan", "inf\n"}) EXPECT_THAT(out_.str(), Not(HasSubstr(nonsense)));
}

TEST_F(ProgressTest, EndsWithASummary) {
  Progress progress = Make({});
  progress.OnStart(
      {.run_directory = "runs/deep", .model = "DeepNorm 2L-2L", .parameters = 1234567, .stages = 2, .first_step = 7});
  progress.OnStep(Step(1));
  progress.OnStep(Step(2));
  progress.OnValidation(
      {.step = 2, .nll = 3, .perplexity = 20.1, .scores = TranslationScores{.bleu = 12.34}, .best = true});
  progress.OnValidation({.step = 3, .nll = 4, .perplexity = 54.6, .scores = TranslationScores{.bleu = 11}});
  progress.OnFinish("stopped");
  const std::vector<std::string> lines = Screen(out_.str());
  EXPECT_EQ(lines[0], "DeepNorm 2L-2L, 1,234,567 parameters, 1 rank of 1 thread, 2 pipeline stages");
  EXPECT_EQ(lines[1], "resuming after step 6");
  ASSERT_GE(lines.size(), 4u);
  const std::vector<std::string> end(lines.end() - 4, lines.end());
  EXPECT_THAT(end, ElementsAre("stopped: 2 steps, 8,192 target tokens in 1.0s (8.19k tok/s while training)",
                               "best validation nll 3.000 (ppl 20.10) at step 2", "last BLEU 11.0 at step 3",
                               "run directory runs/deep"));
}

TEST_F(ProgressTest, ASpeechRunEndsWithItsWordErrorRate) {
  Progress progress = Make({});
  progress.OnStart({.model = "S2T", .frame_width = 80});
  progress.OnValidation({.step = 3, .nll = 4, .scores = TranslationScores{.bleu = 11, .word_error_rate = 0.25}});
  progress.OnFinish("stopped");
  EXPECT_THAT(out_.str(), HasSubstr("last WER 25.0% at step 3\n"));
}

}  // namespace
}  // namespace hadal
