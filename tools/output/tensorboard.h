// The sink that writes TensorBoard event files; `tensorboard --logdir RUN/tb` shows them. hadal needs no TensorFlow.
//
//   train/{loss,nll,ppl,lr,gradient_norm,epoch}   train/skipped (1 at a step whose update was not applied)
//   perf/{tokens_per_second,step_seconds}
//   pipe/bubble/{measured,analytic}   pipe/stage_K/{forward,recompute,backward,wait,communication,optimizer}  seconds
//   valid/{nll,ppl,bleu}
//   depth/log10_gradient_norm   histogram over the sublayers, every `depth_every_steps` steps
//   depth/gradient_norm/{encoder,decoder}_{bottom,top}   geometric mean over that side's lowest or highest tenth
//   depth/model_update                         at the instruments' recorded steps, for each series of
//                                              runtime/depth_metrics.h:
//   depth/SERIES/{encoder,decoder}_{bottom,top}   mean, or geometric mean, over that side's lowest or highest tenth
//   notice, warning, sample, config   text; config at each start
// A value that is not finite is written unchanged (TensorBoard marks it); histograms and means leave out zeros and
// values that are not finite.
//
// One file: a resumed run copies what earlier files have of the steps before its first one to a file of its own and
// puts empty ones in their places, as metrics.jsonl (metrics_jsonl.h). TensorBoard's own way, an event SessionLog START
// with the first step, is not enough: its data server, the default, ignores it. The file begins with such an
// event at step 0, at which a TensorBoard that runs meanwhile replaces what it has read by the copies. Without the data
// server TensorBoard continues with a new file only if the one before still exists, so empty ones are removed at the
// next start. Files that hadal did not write stay.
// Source of the format: TensorFlow's event.proto and record_writer.cc; tools/output/tensorboard_event.proto.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/metrics_sink.h"
#include "tools/output/append_whole.h"

namespace hadal {

// Returns `data` as one TFRecord, of which TensorBoard's event files consist:
//   record = length (8 bytes, little-endian) · masked CRC-32C of those 8 bytes (4) · data · masked CRC-32C of data (4)
// A reader stops at a truncated record and continues when the rest arrives, so records are written whole
// (append_whole.h).
std::string FrameRecord(std::string_view data);

// Takes the first record of `in`; returns false if it is cut or its length is damaged. `data`: nullopt if its checksum
// is wrong.
bool TakeRecord(std::string_view& in, std::optional<std::string_view>& data);

class TensorBoard : public MetricsSink {
 public:
  struct Options {
    std::string directory;   // RUN/tb; created if missing
    int64_t first_step = 1;  // the next step to run
    int64_t depth_every_steps = 10;
    std::string attempt = "new";                // of this attempt, part of the file's name
    std::string config;                         // the run's, as text; empty: not written
    std::function<absl::Status()> may_write{};  // whether this attempt owns the run directory; empty: yes
  };

  // Replaces earlier files as above. Errors: that of may_write; those of files.
  static absl::StatusOr<std::unique_ptr<TensorBoard>> Open(const Options& options);

  void OnStart(const RunInfo& run) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnDepth(const DepthMetrics& metrics) override;
  void OnValidation(const ValidationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;
  void OnText(int64_t step, TextKind kind, std::string_view text) override;
  absl::Status Flush() override;

  const std::string& path() const { return file_.path(); }

 private:
  TensorBoard(Options options, WholeAppender file) : options_(std::move(options)), file_(std::move(file)) {}
  void AppendText(int64_t step, const std::string& tag, std::string text);
  // `event` is a serialised hadal.tensorboard.Event.
  void Append(const std::string& event);

  Options options_;
  WholeAppender file_;
  RunInfo run_;
};

}  // namespace hadal
