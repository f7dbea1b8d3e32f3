// `hadal checkpoint` lists, verifies, compares, averages, exports and imports checkpoints, in one process without MPI.
//
//   hadal checkpoint ls RUN_OR_DIR                     the checkpoints of a run, or what one holds
//   hadal checkpoint verify RUN_OR_DIR                 reads every byte and compares every checksum
//   hadal checkpoint diff A B [--weights-only]         weights and moments, bit by bit; "identical" or where they
//                                                      differ
//   hadal checkpoint export DIR --out M.safetensors    fairseq's names and shapes, vocabularies and settings beside it
//   hadal checkpoint export DIR --format F --out DIR   for Hugging Face transformers, CTranslate2 or fairseq
//   hadal checkpoint import SOURCE --out DIR           the reverse; also models that those programs trained
//   hadal checkpoint average DIR… --out DIR            mean of the weights of several checkpoints
//   hadal checkpoint average RUN --last N | --best N --out DIR
// Where one checkpoint is expected, a run directory means its newest readable one; for export its best.
// Exit codes: 0 done or identical, 1 error or different, 2 bad usage, 3 a checkpoint is damaged.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/command_line.h"

namespace hadal {

// Adds the positional argument RUN_OR_DIR to a subcommand that uses one model; parsing stores it in `checkpoint`.
void AddCheckpointOption(Command command, std::string& checkpoint);

// Which checkpoints of a run to select: the newest `last`, or the `best` by validation. Exactly one of
// the two is > 0.
struct CheckpointSelection {
  int64_t last = 0;
  int64_t best = 0;
};
// Returns the selected checkpoints, oldest first. Skips checkpoints that cannot be opened and reports them on `out`.
// Errors: FailedPrecondition if the run has fewer checkpoints that can be opened (and, for `best`, that have a
// validation score); NotFound if a run in progress has removed one since it was listed; the caller may try again.
absl::StatusOr<std::vector<std::string>> SelectCheckpoints(const std::string& run_directory,
                                                           const CheckpointSelection& selection, std::ostream& out);

// Writes the mean of the weights of `inputs` (at least one checkpoint directory) as a new checkpoint in `directory`,
// which must not exist and appears whole or not at all.
//
//   w = (1/n) Σ_k w_k,   summed in double in the given order, rounded once to float
// The result holds weights only, because a mean of Adam's moments is not the state of any run. So training cannot
// resume from it, but a new run can start from it (--init-from), and it can be used for translation, scoring and
// export. Progress, configuration and vocabularies are copied from the input with the most steps; there is no
// validation score. Source of the practice: Vaswani et al. 2017, section 6.1. Prints progress on `out`. Memory: three
// slices.
// Errors: AlreadyExists; FailedPrecondition for different models or vocabularies; InvalidArgument if two inputs are the
// same checkpoint; those of CheckpointReader.
absl::Status AverageCheckpoints(const std::vector<std::string>& inputs, const std::string& directory,
                                std::ostream& out);

struct CheckpointDiffOptions {
  bool weights_only = false;
  int64_t lines = 20;  // the number of parameters listed, the most different ones first; 0: all
};

// `hadal checkpoint diff` compares the state of two checkpoints and prints where and by how much they differ.
//
// State is weights and moments; progress (step, update) is reported if it differs, but does not make checkpoints
// different. Equal means bit-equal (a NaN equals the same NaN, 0 differs from -0). Norms and maxima are computed in
// double, in element order:
//   max |Δ| = max_i |a_i - b_i|        relative = ‖a - b‖ / ‖a‖
// Prints "identical" or the differences. Returns true if identical. `a`, `b`: a checkpoint, or a run directory for its
// newest one. Memory: two slices.
// Errors: those of OpenCheckpoint and CheckpointReader. Different models count as a difference, not as an error.
absl::StatusOr<bool> DiffCheckpoints(const std::string& a, const std::string& b, const CheckpointDiffOptions& options,
                                     std::ostream& out);

struct CheckpointExportOptions {
  std::string checkpoint;    // a checkpoint, or a run directory for its best one
  std::string out;           // FILE.safetensors; with a format, a folder that does not exist yet
  std::string format;        // "": one safetensors file; "huggingface", "ctranslate2", "fairseq"
  std::string quantization;  // of the weights for ctranslate2: "int8", …; "": float32
  bool force = false;        // replace FILE and its .json
  bool allow_nonfinite = false;
};

// `hadal checkpoint export` writes all weights to one safetensors file, or in another program's format.
//
// Names and shapes are fairseq's ([out, in]; vectors one-dimensional; a shared matrix once, under its first name). Next
// to FILE it writes FILE with the extension .json (model settings, config, origin) and the vocabularies in the
// checkpoint, under their own names. FILE appears whole or not at all. An existing file with a vocabulary's name is
// kept if it has the same contents (several exports share it); otherwise it is an error.
// With a format, the Python package hadal_torch then converts such a file to the folder `out` (docs/interchange.md).
// The signals TERM, INT and HUP end an export or import without leaving a new file.
// Memory: one slice; with a format, the whole model in Python. Errors: AlreadyExists; InvalidArgument (FILE's
// extension, what the format cannot express, weights that are not finite); those of OpenCheckpoint, of RunHadalTorch
// and of files.
absl::Status ExportCheckpoint(const CheckpointExportOptions& options, std::ostream& out);

struct CheckpointImportOptions {
  std::string source;                     // SOURCE, see below
  std::string out;                        // directory of the checkpoint
  std::vector<std::string> dictionaries;  // paths of fairseq's dict.txt: none, one, or source's and target's
  bool allow_nonfinite = false;
};

// `hadal checkpoint import` makes a checkpoint from a model that another program has written.
//
// SOURCE is FILE.safetensors, with FILE.json and the vocabularies beside it, as `hadal checkpoint export` writes it; or
// a folder of Hugging Face transformers (docs/interchange.md), or fairseq's checkpoint.pt. The Python package
// hadal_torch first converts the latter two to such a file. The result holds weights only: enough to translate, to
// score, to export and for `hadal train --init-from`.
// Memory: one slice; with Python, the whole model there. Errors: AlreadyExists; NotFound; DataLoss, naming what is
// missing, unknown or of another shape than the settings give; InvalidArgument for weights that are not finite; those
// of RunHadalTorch.
absl::Status ImportCheckpoint(const CheckpointImportOptions& options, std::ostream& out);

// `hadal checkpoint ls`. For a run, prints one line per checkpoint, with the reason if it is damaged. For one
// checkpoint, prints its progress and files. With `parameters`, also prints the names and shapes of the parameters (of
// a run: its newest checkpoint's). Reads only manifests. A run in progress may remove a checkpoint meanwhile: no error.
absl::Status PrintCheckpoints(const std::string& run_or_directory, bool parameters, std::ostream& out);

// `hadal checkpoint verify`. Verifies one checkpoint, or all of a run, which may be in progress as above; prints one
// line each. Errors: DataLoss if any is damaged; NotFound if there is none; else the first error of reading.
absl::Status VerifyCheckpoints(const std::string& run_or_directory, std::ostream& out);

}  // namespace hadal
