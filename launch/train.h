// `hadal train BASE.textproto [MORE.textproto …] [--set a.b=c]… [--run-dir DIR] [--resume auto|never|PATH] [--init-from
// CHECKPOINT]`
//
// The steps of a run, one file each: config files → plain options and corpora (train_preparation.h) → plans of model
// and pipeline (train_layout.h) → trainer (pipeline/trainer.h), its work beside training (train_surroundings.h), and
// its starting point (train_start.h). Rank 0 writes metrics, TensorBoard events and the progress line
// (training_sinks.h).
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback trains and stores the exit code.
void AddTrainCommand(Command app, int& exit_code);

}  // namespace hadal
