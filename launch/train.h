// `hadal train BASE.textproto [MORE.textproto …] [--set a.b=c]… [--run-dir DIR] [--resume auto|never|PATH] [--init-from
// CHECKPOINT]`
//
// The steps of a run: config files → plain options and corpora (train_preparation.h) → what all ranks do, with the
// plans of model and pipeline (train_start.h) → trainer (pipeline/trainer.h) → its starting point (train_start.h). Rank
// 0 writes metrics, TensorBoard events and the progress line (training_sinks.h).
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback trains and stores the exit code.
void AddTrainCommand(Command app, int& exit_code);

}  // namespace hadal
