#include "tools/output/work_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool UnicodeExpected() {
  if (!Environment("HADAL_ASCII").empty()) return false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view locale = Environment(name);
    if (locale.empty()) continue;
    const size_t dot = locale.find('.');
    if (dot == std::string_view::npos) return true;
    const std::string_view charset = locale.substr(dot + 1);
    return absl::StartsWithIgnoreCase({charset.data(), charset.size()}, "utf-8") ||
           absl::StartsWithIgnoreCase({charset.data(), charset.size()}, "utf8");
  }
  return true;
}

constexpr int kBarColumns = 16;

std::string Bar(double share, bool unicode) {
  const int filled = static_cast<int>(share * kBarColumns);
  std::string bar;
  for (int i = 0; i < kBarColumns; ++i) bar += i < filled ? (unicode ? "━" : "=") : (unicode ? "┄" : ".");
  return bar;
}

int SegmentWidth(const LineSegment& segment) {
  return DisplayWidth(segment.value) + (segment.label.empty() ? 0 : DisplayWidth(segment.label) + 1);
}

int LineWidth(const std::vector<LineSegment>& segments) {
  int width = -2;
  for (const LineSegment& segment : segments) width += SegmentWidth(segment) + 2;
  return width;
}

// Pads to the usual width, so that columns of a self-updating line do not move.
std::string Steady(std::string value, const TerminalStyle& style, int columns = 5) {
  if (style.live) value.resize(std::max(value.size(), static_cast<size_t>(columns)), ' ');
  return value;
}

// Learning rates span decades within a run, so they always have an exponent.
std::string RateValue(double rate) { return std::isfinite(rate) ? absl::StrFormat("%.2e", rate) : HumanValue(rate, 3); }

Ink InkOf(double value, Ink finite) { return std::isfinite(value) ? finite : Ink::kBad; }

}  // namespace

int TerminalColumns(int file_descriptor) {
  winsize window{};
  const int columns = ioctl(file_descriptor, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
  return columns > 0 ? columns : std::atoi(std::string(Environment("HADAL_COLUMNS")).c_str());
}

TerminalStyle DetectTerminal(int file_descriptor) {
  TerminalStyle style;
  style.unicode = UnicodeExpected();
  const int columns = isatty(file_descriptor) ? TerminalColumns(file_descriptor) : 0;
  const std::string_view term = Environment("TERM");
  style.live = columns > 0 && term != "dumb";
  style.color = style.live && Environment("NO_COLOR").empty();
  if (columns > 0) style.columns = columns;
  return style;
}

std::string Paint(std::string_view text, Ink ink, bool color) {
  if (!color || ink == Ink::kPlain || text.empty()) return std::string(text);
  return absl::StrCat("\033[", static_cast<int>(ink), "m", absl::string_view(text.data(), text.size()), "\033[0m");
}

int DisplayWidth(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string AlignedColumns(const std::vector<std::vector<std::string>>& lines, std::string_view margin) {
  std::vector<int> widths(lines.empty() ? 0 : lines[0].size());
  for (const std::vector<std::string>& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(line[i]));
  }
  std::string text;
  for (const std::vector<std::string>& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string space(line.size() == 1 ? 0 : widths[i] - DisplayWidth(line[i]), ' ');
      text += i == 0 ? std::string(margin) + line[i] + space : "  " + space + line[i];
    }
    text += "\n";
  }
  return text;
}

std::string CutToWidth(std::string_view text, int columns) {
  int width = 0;
  size_t bytes = 0;
  while (bytes < text.size()) {
    if ((text[bytes] & 0xC0) != 0x80 && ++width > columns) break;
    ++bytes;
  }
  return std::string(text.substr(0, bytes));
}

std::string WrapAtWords(std::string_view text, int columns) {
  std::string wrapped;
  int width = 0;           // of the present line
  size_t space = 0;        // in `wrapped`: where the line may break
  int width_at_space = 0;  // up to and with it
  bool may_break = false, in_escape = false;
  for (const char c : text) {
    wrapped += c;
    in_escape |= c == '\033';
    if (in_escape) {
      in_escape = c != 'm';
      continue;
    }
    if ((c & 0xC0) == 0x80) continue;
    if (c == '\n') {
      width = 0;
      may_break = false;
      continue;
    }
    ++width;
    if (c == ' ') {
      space = wrapped.size() - 1;
      width_at_space = width;
      may_break = true;
    }
    if (width > columns && may_break && c != ' ') {
      wrapped[space] = '\n';
      width -= width_at_space;
      may_break = false;
    }
  }
  return wrapped;
}

std::string LayOutLine(std::vector<LineSegment> segments, int columns, bool color) {
  while (segments.size() > 1 && LineWidth(segments) > columns) {
    const auto last = std::ranges::max_element(segments.rbegin(), segments.rend(), {}, &LineSegment::rank);
    segments.erase(std::next(last).base());
  }
  if (LineWidth(segments) > columns) {
    LineSegment& only = segments.front();
    only.value = CutToWidth(only.label.empty() ? only.value : absl::StrCat(only.label, " ", only.value), columns);
    only.label.clear();
  }
  std::string line;
  for (const LineSegment& segment : segments) {
    if (!line.empty()) line += "  ";
    if (!segment.label.empty()) absl::StrAppend(&line, Paint(segment.label, Ink::kDim, color), " ");
    line += Paint(segment.value, segment.ink, color);
  }
  return line;
}

std::vector<LineSegment> StepSegments(const StepMetrics& metrics, const TerminalStyle& style) {
  const int64_t done = metrics.step;
  std::vector<LineSegment> segments;
  std::string count = HumanCount(done);
  if (metrics.total_steps > 0) {
    const std::string total = HumanCount(metrics.total_steps);
    if (style.live && count.size() < total.size()) count.insert(0, total.size() - count.size(), ' ');
    absl::StrAppend(&count, "/", total);
  }
  segments.push_back({"step", count, Ink::kBold, 0});
  if (metrics.total_steps > 0) {
    const double share = std::clamp(static_cast<double>(done) / static_cast<double>(metrics.total_steps), 0.0, 1.0);
    if (style.live) segments.push_back({"", Bar(share, style.unicode), Ink::kGood, 8});
    segments.push_back({"", absl::StrFormat("%*.0f%%", style.live ? 3 : 0, std::floor(100 * share)), Ink::kPlain, 7});
  }
  segments.push_back({"loss", Steady(HumanValue(metrics.loss, 4), style), InkOf(metrics.loss, Ink::kBold), 1});
  segments.push_back(
      {"ppl", Steady(HumanValue(metrics.perplexity, 4), style), InkOf(metrics.perplexity, Ink::kPlain), 3});
  segments.push_back({"lr", RateValue(metrics.learning_rate), Ink::kPlain, 5});
  segments.push_back(
      {"gnorm", Steady(HumanValue(metrics.gradient_norm, 3), style), InkOf(metrics.gradient_norm, Ink::kPlain), 6});
  segments.push_back({"", absl::StrCat(Steady(HumanRate(metrics.tokens_per_second), style), " tok/s"), Ink::kPlain, 4});
  if (metrics.eta_seconds.has_value() && done != metrics.total_steps) {
    const std::string limit =
        metrics.eta_limit == "steps" ? "" : absl::StrCat(" (stop.", std::string(metrics.eta_limit), ")");
    segments.push_back({"ETA", HumanDuration(*metrics.eta_seconds) + limit, Ink::kPlain, 2});
  }
  if (!style.live) segments.push_back({"elapsed", HumanDuration(metrics.elapsed_seconds), Ink::kPlain, 9});
  if (metrics.skipped) segments.push_back({"", "update skipped", Ink::kBad, 1});
  return segments;
}

std::vector<std::string> CorpusLines(const ValidationMetrics& metrics) {
  constexpr size_t kMostLines = 12;
  std::vector<std::string> lines;
  if (metrics.corpora.size() <= kMostLines) {
    size_t widest = 0;
    for (const CorpusValidation& corpus : metrics.corpora) widest = std::max(widest, corpus.corpus.size());
    for (const CorpusValidation& corpus : metrics.corpora) {
      lines.push_back(
          absl::StrFormat("  %-*s  nll %s", static_cast<int>(widest), corpus.corpus, HumanValue(corpus.nll, 4)));
      if (corpus.scores)
        absl::StrAppendFormat(&lines.back(), "  BLEU %.1f  chrF++ %.1f", corpus.scores->bleu, corpus.scores->chrf);
    }
    return lines;
  }
  double nll = 0, bleu = 0;
  int scored = 0;
  for (const CorpusValidation& corpus : metrics.corpora) {
    nll += corpus.nll / static_cast<double>(metrics.corpora.size());
    if (!corpus.scores) continue;
    bleu += corpus.scores->bleu;
    ++scored;
  }
  lines.push_back(absl::StrCat("  means over ", metrics.corpora.size(), " directions: nll ", HumanValue(nll, 4)));
  if (scored > 0) absl::StrAppendFormat(&lines.back(), ", BLEU %.1f of %d of them", bleu / scored, scored);
  return lines;
}

std::vector<LineSegment> ValidationSegments(const ValidationMetrics& metrics) {
  std::vector<LineSegment> segments = {
      {"validation at step", HumanCount(metrics.step), Ink::kBold, 0},
      {"nll", HumanValue(metrics.nll, 4), InkOf(metrics.nll, Ink::kBold), 1},
      {"ppl", HumanValue(metrics.perplexity, 4), InkOf(metrics.perplexity, Ink::kPlain), 3},
  };
  if (metrics.accuracy) {
    segments.push_back({"accuracy", absl::StrFormat("%.1f%%", 100 * *metrics.accuracy), Ink::kBold, 1});
  }
  if (metrics.scores) {
    segments.push_back({"BLEU", absl::StrFormat("%.1f", metrics.scores->bleu), Ink::kBold, 1});
    segments.push_back({"chrF++", absl::StrFormat("%.1f", metrics.scores->chrf), Ink::kPlain, 6});
    segments.push_back({"WER", absl::StrFormat("%.1f%%", 100 * metrics.scores->word_error_rate), Ink::kPlain, 7});
    segments.push_back({"CER", absl::StrFormat("%.1f%%", 100 * metrics.scores->character_error_rate), Ink::kPlain, 8});
  }
  if (metrics.best) segments.push_back({"", "best so far", Ink::kGood, 2});
  segments.push_back({"", absl::StrCat(HumanCount(metrics.sentences), " sentences"), Ink::kDim, 5});
  segments.push_back({"in", HumanDuration(metrics.seconds), Ink::kDim, 4});
  return segments;
}

WorkProgress::WorkProgress(std::string what, std::string unit, int64_t total)
    : WorkProgress({.out = std::cerr, .style = DetectTerminal(STDERR_FILENO)}, std::move(what), std::move(unit),
                   total) {}

WorkProgress::WorkProgress(Output output, std::string what, std::string unit, int64_t total)
    : output_(std::move(output)),
      what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      thread_([this](const std::stop_token& ended) { Tick(ended); }) {}

void WorkProgress::Tick(const std::stop_token& ended) {
  const bool live = output_.style.live;
  double next_seconds = live ? output_.first_live_seconds : output_.first_plain_seconds;
  bool shown = false;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any end;
  while (
      !end.wait_for(lock, ended, std::chrono::duration<double>(next_seconds), [&] { return ended.stop_requested(); })) {
    const std::string line =
        WorkProgressLine(what_, unit_, done_.load(std::memory_order_relaxed), total_, watch_.Seconds());
    output_.out << (live ? absl::StrCat("\r\033[K", CutToWidth(line, output_.style.columns - 1)) : line + "\n")
                << std::flush;
    shown = true;
    next_seconds = live ? output_.live_seconds : output_.plain_seconds;
  }
  if (shown && live) output_.out << "\r\033[K" << std::flush;
}

std::string WorkProgressLine(const std::string& what, const std::string& unit, int64_t done, int64_t total,
                             double seconds) {
  const auto count = [](int64_t units) {
    return units < 10'000 ? HumanCount(units) : HumanRate(static_cast<double>(units));
  };
  if (total == 0) {
    const std::string so_far = done > 0 ? absl::StrCat("  ", count(done), " ", unit) : "";
    return absl::StrCat(what, so_far, "  ", HumanDuration(seconds));
  }
  done = std::min(done, total);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const std::string eta = done > 0 ? absl::StrCat("  ETA ", HumanDuration(seconds * (1 / share - 1))) : "";
  return absl::StrFormat("%s  %2.0f%%  %s/%s %s%s", what, 100 * share, count(done), count(total), unit, eta);
}

}  // namespace hadal
