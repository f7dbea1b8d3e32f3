// The sink that prints progress. On a terminal: one line that updates itself, and below it a strip with the gradient
// norms over the depth (RenderDepthStrip). Otherwise: plain lines at the first step, every `plain_interval_seconds`,
// and at the last step, with the strip at each validation. Both: a line for the run, each validation and each event,
// and a summary at the end.
//
//   step 1,234/10,000  12%  loss 4.321  ppl 75.2  lr 4.9e-04  gnorm 1.23  12.3k tok/s  ETA 3m20s
//   gnorm by depth 2e-05 ▂▂▃▃▃▃▄▄▄▄▅│▆▆▇▇▇▇█████ 3e-02
// With several threads per rank, warns once if other programs use the cores: after ten seconds of training, the ranks'
// main threads have waited for a core for a quarter of their computing time.
// In a narrow window the line drops its least important parts first (the bar, the learning rate, …); it never wraps. A
// loss that is not finite is shown as a word.
// Threads: one at a time calls it. Blocking: only while the terminal accepts the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/clock.h"
#include "runtime/metrics_sink.h"
#include "tools/output/work_progress.h"

namespace hadal {

// The strip's vertical range. It widens at once and narrows slowly, so that a change of the norms moves the strip
// rather than its scale. It always spans at least one decade.
class DepthScale {
 public:
  // Takes the next step's norms into account; ignores zeros and values that are not finite.
  void Follow(absl::Span<const float> norms);

  bool known() const { return known_; }
  double low() const { return low_; }    // log10
  double high() const { return high_; }  // log10

 private:
  bool known_ = false;
  double low_ = 0;
  double high_ = 1;
};

struct DepthStrip {
  absl::Span<const float> norms;  // [sublayers]
  int32_t encoder_sublayers = 0;
  int columns = 72;  // at most; fewer if there are fewer sublayers. REQUIRES: ≥ 3
  bool unicode = true;
};

struct DepthStripText {
  std::string encoder;
  std::string border;  // empty if one side is empty
  std::string decoder;
  int columns = 0;  // of all three together
};

// Draws gradient norms over the depth in one line of text: each column ▁▂▃▄▅▆▇█ stands for a few neighbouring sublayers
// and shows the logarithm of their geometric mean, with the encoder left and the decoder right of a border.
//
//   ▅▅▄▄▄▃▃▃▂▂▂▂▂▃▃▃▄▄▅▆│▃▃▃▃▄▄▄▄▅▅▅▅▆▆▆▇▇▇██
// "·" is a column whose norms are all zero, "×" one with a norm that is not finite. Without Unicode: levels
// " .:-=+*#", "0" for zero and "x" for not finite.
DepthStripText RenderDepthStrip(const DepthStrip& strip, const DepthScale& scale);

class Progress : public MetricsSink {
 public:
  struct Options {
    TerminalStyle style;
    std::function<int()> columns;  // the window's current width; empty: style.columns
    std::function<double()> clock = &MonotonicSeconds;
    double plain_interval_seconds = 10;
    double redraw_seconds = 0.1;  // at most ten redraws a second
  };

  // `out` must outlive the sink.
  Progress(std::ostream& out, Options options) : out_(out), options_(std::move(options)) {}

  void OnStart(const RunInfo& run) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnValidation(const ValidationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;
  void OnText(int64_t step, TextKind kind, std::string_view text) override;
  void OnFinish(std::string_view reason) override;
  absl::Status Flush() override;

 private:
  int Columns() const;
  void Redraw(const StepMetrics& metrics);  // shows a step
  void WarnOfBusyCores(const StepMetrics& metrics);
  std::string EraseLive() const;            // the escapes that remove the self-updating lines
  void PrintLine(const std::string& line);  // a line that stays, above the self-updating ones

  std::ostream& out_;
  Options options_;
  RunInfo run_;
  DepthScale scale_;
  std::vector<float> norms_;  // the latest ones received
  std::optional<StepMetrics> last_;
  std::optional<ValidationMetrics> best_;
  std::optional<ValidationMetrics> last_validation_;
  int64_t steps_ = 0;
  int64_t skipped_ = 0;
  double busy_seconds_ = 0;       // computing and waiting for a core, over all stages
  double core_wait_seconds_ = 0;  // of busy_seconds_, without a core
  bool warned_of_busy_cores_ = false;
  int64_t target_tokens_ = 0;
  double step_seconds_ = 0;
  double shown_at_ = 0;  // when a step was last shown
  bool shown_ = false;   // whether `last_` is on the screen
  std::string live_;     // the self-updating lines as currently shown
};

}  // namespace hadal
