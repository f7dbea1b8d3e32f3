// `hadal train BASE.textproto [MORE.textproto …] [--set a.b=c]… [--run-dir DIR] [--resume auto|never|PATH] [--init-from CHECKPOINT]`
//
// From files to a running trainer: config → plain options → corpora → model plan (made on rank 0, broadcast) → pipeline plan →
// trainer, with metrics.jsonl, TensorBoard events and the progress line on rank 0.
#pragma once

#include "CLI/CLI.hpp"

namespace hadal {

// Registers the subcommand; its callback trains and stores the exit code.
void AddTrainCommand(CLI::App& app, int& exit_code);

}  // namespace hadal
