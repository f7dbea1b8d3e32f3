// `hadal evaluate` translates a list of test sets with one model, on any number of ranks, and has them scored.
//
//   hadal evaluate RUN_OR_DIR --list LIST | --opus FOLDER [--tags PRESET] --out FOLDER
//                  [--against FOLDER] [--train-corpus PREFIX] [--pivot en] [beam options of `hadal translate`]
// The test splits of the list (configs/corpora.proto) are checked and copied before the first is translated. For each
// test set it writes NAME.source, NAME.reference and NAME.hypothesis into FOLDER, with lines as sacreBLEU reads them,
// and test_sets.json, which names the sets; then `pyhadal evaluate FOLDER` (tools/python) scores them and writes the
// reports.
// After an interruption the same command continues: NAME.key identifies the checkpoint's contents, the options, the
// source and the translation; a translation is kept if all four are unchanged.
// In FOLDER only files that its test_sets.json lists as written are replaced; one process at a time writes there.
// Memory: the model, a buffer of lines, the text of the largest test set.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "tools/command_line.h"
#include "tools/translate/translate.h"

namespace hadal {

// Of TranslateOptions, input, output and direction stay empty.
struct EvaluateOptions : TranslateOptions {
  std::string list, opus;    // LIST or, if that is empty, the folder of --opus
  std::string folder;        // FOLDER of --out
  std::string against;       // another evaluation's folder; empty: none
  std::string train_corpus;  // prefix of the training corpus, for its sizes in the reports; empty: not known
  std::string pivot = "en";  // the language by which the reports group directions (into, from and without it)
};

// All ranks call it together; rank 0 reads and writes. Blocking.
// Errors: those of RunTranslations; InvalidArgument for a list without test sets, for a file in FOLDER that would be
// replaced but that no evaluation wrote, and for a test set (the message names it) that is empty, that cannot be
// read, whose sides have different numbers of lines, whose languages the model has no tag for, or whose files would
// overwrite an input.
absl::Status RunEvaluate(const EvaluateOptions& options, Communicator& communicator, const Stream& stream,
                         const TranslateStreams& streams);

// Adds the options to a subcommand.
void AddEvaluateOptions(Command command, EvaluateOptions& options);

}  // namespace hadal
