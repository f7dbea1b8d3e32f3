#include "launch/train/train_surroundings.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/data/corpus_vocabulary.h"
#include "runtime/data/unspaced_text.h"
#include "runtime/status_macros.h"
#include "tools/metrics/trace_json.h"

namespace hadal {
namespace {

absl::StatusOr<std::unique_ptr<ValidationBleu>> MakeValidationBleu(const PreparedRun& prepared,
                                                                   const RunLayout& layout) {
  const TrainOptions& options = prepared.options.train;
  if (!layout.pipeline.decoder || !prepared.validation) return nullptr;
  HADAL_ASSIGN_OR_RETURN(CorpusVocabularies vocabularies, LoadVocabularies(*prepared.validation));
  return std::make_unique<ValidationBleu>(*prepared.validation, std::move(vocabularies),
                                          options.validation.bleu_sentences, layout.plan, layout.pipeline,
                                          absl::Seconds(options.pipeline.wait_timeout_seconds));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ValidationBleu>> MakeValidationBleu(const PreparedRun& prepared, const RunLayout& layout,
                                                                   Collectives& collectives, TrainingSinks& sinks) {
  absl::StatusOr<std::unique_ptr<ValidationBleu>> bleu = MakeValidationBleu(prepared, layout);
  HADAL_RETURN_IF_ERROR(collectives.AllOk(bleu.status(), "preparing BLEU"));
  if (*bleu != nullptr && (*bleu)->skipped() > 0) {
    sinks.Tell(absl::StrCat(
        "warning: BLEU at validations leaves out ", (*bleu)->skipped(), " of ",
        (*bleu)->skipped() + (*bleu)->sentences(), " sentences: their sources are empty or longer than ",
        layout.pipeline.decode_capacity.longest_source - 1, " tokens (batch.source_tokens, model.max_positions)"));
  }
  if (*bleu != nullptr && IsUnspaced((*bleu)->references())) sinks.Tell(absl::StrCat("warning: ", kUnspacedBleu));
  return bleu;
}

absl::StatusOr<TraceRequest> MakeTraceRequest(const TrainArguments& arguments, const StopOptions& stop,
                                              TrainingSinks& sinks) {
  if (arguments.trace.empty()) return TraceRequest();
  HADAL_ASSIGN_OR_RETURN(const TraceSteps steps, ParseTraceSteps(arguments.trace));
  if (stop.steps > 0 && steps.last >= stop.steps) {
    return absl::InvalidArgumentError(absl::StrCat("--trace ", arguments.trace,
                                                   " goes beyond the run: its last step is ", stop.steps - 1,
                                                   " (stop.steps = ", stop.steps, ", counted from 0)"));
  }
  return TraceRequest{
      .first_step = steps.first, .last_step = steps.last, .write = [&arguments, &sinks](const RunTrace& trace) {
        const absl::StatusOr<std::string> path = WriteTraceJson(trace, arguments.run_directory);
        sinks.sink().OnText(
            trace.last_step, path.ok() ? TextKind::kNotice : TextKind::kWarning,
            path.ok() ? absl::StrCat("trace written: ", *path) : absl::StrCat("no trace: ", path.status().message()));
      }};
}

}  // namespace hadal
