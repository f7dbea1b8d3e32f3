// `hadal train BASE.textproto [MORE.textproto …] [--set a.b=c]… [--run-dir DIR] [--resume auto|never|PATH] [--init-from
// CHECKPOINT [--deepen]]`
//
// Trains a model. Each rank: reads config files and corpora (train_preparation.h) → compares them with all ranks, and
// plans model and pipeline (train_start.h) → creates the trainer (pipeline/trainer.h) → loads a checkpoint, if any
// (resume.h) → trains. Rank 0 writes metrics, TensorBoard events and the progress line (training_sinks.h).
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback trains and stores the exit code.
void AddTrainCommand(Command app, int& exit_code);

}  // namespace hadal
