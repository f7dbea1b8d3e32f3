#include "tools/output/progress.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

constexpr int kShades = 8;
constexpr double kLeastDecades = 1;
constexpr double kNarrowing = 0.05;  // share of the surplus range removed each step

using Glyphs = std::array<const char*, kShades + 2>;  // the levels, all-zero, not finite
constexpr Glyphs kUnicode = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█", "·", "×"};
constexpr Glyphs kAscii = {" ", ".", ":", "-", "=", "+", "*", "#", "0", "x"};

const char* GlyphOf(absl::Span<const float> norms, const DepthScale& scale, const Glyphs& glyphs) {
  double sum = 0;
  int positive = 0;
  for (const float norm : norms) {
    if (!std::isfinite(norm)) return glyphs[kShades + 1];
    if (norm <= 0) continue;
    sum += std::log10(static_cast<double>(norm));
    ++positive;
  }
  if (positive == 0) return glyphs[kShades];
  const double height = (sum / positive - scale.low()) / (scale.high() - scale.low());
  return glyphs[std::clamp(static_cast<int>(height * kShades), 0, kShades - 1)];
}

std::string RenderSide(absl::Span<const float> norms, int columns, const DepthScale& scale, const Glyphs& glyphs) {
  std::string side;
  for (int column = 0; column < columns; ++column) {
    const size_t begin = norms.size() * column / columns;
    const size_t end = norms.size() * (column + 1) / columns;
    side += GlyphOf(norms.subspan(begin, end - begin), scale, glyphs);
  }
  return side;
}

constexpr int kLongestStrip = 80;
constexpr int kShortestStrip = 8;
constexpr int kPlainColumns = 1000;  // lines of a log are not truncated

// "gnorm by depth 2e-05 ▂▂▃▃│▆▆██ 3e-02", or "" if there is no room or nothing to show.
std::string DepthLine(const std::vector<float>& norms, const RunInfo& run, const DepthScale& scale, int columns,
                      const TerminalStyle& style) {
  if (norms.empty() || !scale.known()) return "";
  std::string label = "gnorm by depth ";
  const std::string low = absl::StrFormat("%.0e ", std::pow(10.0, scale.low()));
  const std::string high = absl::StrFormat(" %.0e", std::pow(10.0, scale.high()));
  const auto room_beside = [&] { return columns - static_cast<int>(label.size() + low.size() + high.size()); };
  if (room_beside() < kLongestStrip / 2) label.clear();
  const int room = std::min(room_beside(), kLongestStrip);
  if (room < kShortestStrip) return "";
  const DepthStripText strip = RenderDepthStrip(
      {.norms = norms, .encoder_sublayers = run.encoder_sublayers, .columns = room, .unicode = style.unicode}, scale);
  return absl::StrCat(Paint(absl::StrCat(label, low), Ink::kDim, style.color),
                      Paint(strip.encoder, Ink::kEncoder, style.color), strip.border,
                      Paint(strip.decoder, Ink::kDecoder, style.color), Paint(high, Ink::kDim, style.color));
}

std::string Counted(int32_t count, const char* noun) { return absl::StrCat(count, " ", noun, count == 1 ? "" : "s"); }

}  // namespace

void DepthScale::Follow(absl::Span<const float> norms) {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const float norm : norms) {
    if (!std::isfinite(norm) || norm <= 0) continue;
    low = std::min(low, std::log10(static_cast<double>(norm)));
    high = std::max(high, std::log10(static_cast<double>(norm)));
  }
  if (low > high) return;
  const double missing = std::max(0.0, kLeastDecades - (high - low));
  low -= missing / 2;
  high += missing / 2;
  low_ = !known_ || low < low_ ? low : low_ + kNarrowing * (low - low_);
  high_ = !known_ || high > high_ ? high : high_ + kNarrowing * (high - high_);
  known_ = true;
}

DepthStripText RenderDepthStrip(const DepthStrip& strip, const DepthScale& scale) {
  HADAL_CHECK_GE(strip.columns, 3);
  const Glyphs& glyphs = strip.unicode ? kUnicode : kAscii;
  const size_t border = std::min(strip.norms.size(), static_cast<size_t>(std::max(0, strip.encoder_sublayers)));
  const auto encoder = strip.norms.first(border);
  const auto decoder = strip.norms.subspan(border);
  const bool both = !encoder.empty() && !decoder.empty();
  const int sublayers = static_cast<int>(strip.norms.size());
  const int room = std::min(sublayers, strip.columns - (both ? 1 : 0));
  int encoder_columns =
      sublayers == 0 ? 0 : static_cast<int>(std::lround(room * static_cast<double>(border) / sublayers));
  if (both) encoder_columns = std::clamp(encoder_columns, 1, room - 1);

  DepthStripText text;
  text.encoder = RenderSide(encoder, encoder_columns, scale, glyphs);
  text.border = !both ? "" : strip.unicode ? "│" : "|";
  text.decoder = RenderSide(decoder, room - encoder_columns, scale, glyphs);
  text.columns = room + (both ? 1 : 0);
  return text;
}

void Progress::OnStart(const RunInfo& run) {
  run_ = run;
  PrintLine(absl::StrCat(run.model, ", ", HumanCount(run.parameters), " parameters, ", Counted(run.ranks, "rank"),
                         " of ", Counted(run.threads, "thread"), ", ", Counted(run.stages, "pipeline stage"),
                         run.replicas > 1 ? absl::StrCat(" x ", Counted(run.replicas, "replica")) : ""));
  if (run.first_step > 1) PrintLine(absl::StrCat("resuming after step ", HumanCount(run.first_step - 1)));
  out_.flush();
}

void Progress::OnStep(const StepMetrics& metrics) {
  last_ = metrics;
  shown_ = false;
  ++steps_;
  target_tokens_ += metrics.target_tokens;
  step_seconds_ += metrics.step_seconds;
  skipped_ += metrics.skipped ? 1 : 0;
  if (!metrics.depth_gradient_norms.empty()) {
    norms_ = metrics.depth_gradient_norms;
    scale_.Follow(norms_);
  }
  WarnOfBusyCores(metrics);
  const double now = options_.clock();
  const double interval = options_.style.live ? options_.redraw_seconds : options_.plain_interval_seconds;
  const bool at_end = metrics.total_steps > 0 && metrics.step >= metrics.total_steps;
  if (steps_ > 1 && !at_end && now - shown_at_ < interval) return;
  shown_at_ = now;
  Redraw(metrics);
}

void Progress::WarnOfBusyCores(const StepMetrics& metrics) {
  constexpr double kLeastSeconds = 10, kLeastShare = 0.25;
  for (const StageTimes& times : metrics.stages) {
    busy_seconds_ += times.forward_seconds + times.recompute_seconds + times.backward_seconds + times.optimizer_seconds;
    core_wait_seconds_ += times.core_wait_seconds;
  }
  if (warned_of_busy_cores_ || run_.threads == 1 || step_seconds_ < kLeastSeconds) return;
  if (core_wait_seconds_ == 0 || core_wait_seconds_ < kLeastShare * busy_seconds_) return;
  warned_of_busy_cores_ = true;
  OnText(metrics.step, TextKind::kWarning,
         absl::StrFormat("other programs use the cores: %.0f%% of the computing time was spent waiting for one. Fewer "
                         "threads than %d a rank (--set pipeline.threads=N) would be as fast, or faster",
                         100 * core_wait_seconds_ / busy_seconds_, run_.threads));
}

void Progress::OnValidation(const ValidationMetrics& metrics) {
  last_validation_ = metrics;
  if (metrics.best && metrics.by_nll) best_ = metrics;
  const int columns = options_.style.live ? Columns() : kPlainColumns;
  PrintLine(LayOutLine(ValidationSegments(metrics), columns, options_.style.color));
  for (const std::string& line : CorpusLines(metrics)) PrintLine(Printable(line));
  if (!options_.style.live) {
    const std::string depth = DepthLine(norms_, run_, scale_, kPlainColumns, options_.style);
    if (!depth.empty()) PrintLine(depth);
  }
  out_.flush();
}

void Progress::OnCheckpoint(const CheckpointMetrics& metrics) {
  if (metrics.in_memory) return;
  const double share = metrics.stall_seconds / std::max(metrics.interval_seconds, metrics.stall_seconds);
  OnText(metrics.step, TextKind::kNotice,
         absl::StrFormat("checkpoint of step %d saved in %.1f s: %s (training waited %.3f s, %.1f%% of the interval)",
                         metrics.step, metrics.seconds, metrics.directory, metrics.stall_seconds,
                         metrics.stall_seconds > 0 ? 100 * share : 0.0));
}

void Progress::OnText(int64_t step, TextKind kind, std::string_view text) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(Printable(text), '\n'))) {
    const std::string label = absl::StrCat(TextKindName(kind), ":");
    PrintLine(kind == TextKind::kNotice   ? Paint(line, Ink::kDim, options_.style.color)
              : kind == TextKind::kSample ? absl::StrCat("  ", line)
                                          : absl::StrCat(Paint(label, Ink::kBad, options_.style.color), " ", line));
  }
  out_.flush();
}

void Progress::OnFinish(std::string_view reason) {
  if (last_.has_value() && !shown_) Redraw(*last_);
  live_.clear();  // the last lines remain on the screen
  PrintLine(absl::StrCat(
      absl::string_view(reason.data(), reason.size()), ": ", HumanCount(steps_), steps_ == 1 ? " step, " : " steps, ",
      HumanCount(target_tokens_), " target tokens in ", HumanDuration(last_.has_value() ? last_->elapsed_seconds : 0.0),
      step_seconds_ > 0
          ? absl::StrCat(" (", HumanRate(static_cast<double>(target_tokens_) / step_seconds_), " tok/s while training)")
          : ""));
  if (skipped_ > 0)
    PrintLine(absl::StrCat(HumanCount(skipped_), skipped_ == 1 ? " update" : " updates",
                           " skipped: a gradient or loss that was not finite, or a loss far above the others"));
  const std::optional<ValidationMetrics>& shown = best_.has_value() ? best_ : last_validation_;
  if (shown.has_value()) {
    PrintLine(absl::StrCat(best_.has_value() ? "best" : "last", " validation nll ", HumanValue(shown->nll, 4), " (ppl ",
                           HumanValue(shown->perplexity, 4), ") at step ", HumanCount(shown->step)));
  }
  if (last_validation_.has_value() && last_validation_->scores.has_value()) {
    const TranslationScores& scores = *last_validation_->scores;
    PrintLine(absl::StrCat("last ",
                           run_.frame_width > 0 ? absl::StrFormat("WER %.1f%%", 100 * scores.word_error_rate)
                                                : absl::StrFormat("BLEU %.1f", scores.bleu),
                           " at step ", HumanCount(last_validation_->step)));
  }
  if (!run_.run_directory.empty()) PrintLine(absl::StrCat("run directory ", run_.run_directory));
  out_.flush();
}

absl::Status Progress::Flush() {
  out_.flush();
  return absl::OkStatus();
}

int Progress::Columns() const {
  const int present = options_.columns ? options_.columns() : 0;
  return (present > 0 ? present : options_.style.columns) - 1;  // some terminals wrap at the last column
}

void Progress::Redraw(const StepMetrics& metrics) {
  shown_ = true;
  const int columns = options_.style.live ? Columns() : kPlainColumns;
  const std::string line = LayOutLine(StepSegments(metrics, options_.style), columns, options_.style.color);
  if (!options_.style.live) {
    PrintLine(line);
  } else {
    const std::string erase = EraseLive();
    const std::string depth = DepthLine(norms_, run_, scale_, columns, options_.style);
    live_ = depth.empty() ? absl::StrCat(line, "\n") : absl::StrCat(line, "\n", depth, "\n");
    out_ << absl::StrCat(erase, live_);
  }
  out_.flush();
}

std::string Progress::EraseLive() const {
  const auto lines = std::count(live_.begin(), live_.end(), '\n');
  return lines == 0 ? "" : absl::StrCat("\033[", lines, "A\r\033[J");  // up, first column, clear below
}

void Progress::PrintLine(const std::string& line) {
  out_ << absl::StrCat(EraseLive(), options_.style.live ? WrapAtWords(line, Columns()) : line, "\n", live_);
}

}  // namespace hadal
