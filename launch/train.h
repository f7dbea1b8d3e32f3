// `hadal train BASE.textproto [MORE.textproto …] [--set a.b=c]… [--run-dir DIR] [--resume auto|never|PATH] [--init-from
// CHECKPOINT]`
//
// The steps of a run, a file each: config files → plain options and corpora (train_preparation.h) → plans of the model
// and of the pipeline (train_layout.h) → trainer (pipeline/trainer.h), what it does beside training
// (train_surroundings.h), where it begins (train_start.h). Metrics, TensorBoard events and the progress line are rank
// 0's (training_sinks.h).
#pragma once

#include "CLI/CLI.hpp"

namespace hadal {

// Registers the subcommand; its callback trains and stores the exit code.
void AddTrainCommand(CLI::App& app, int& exit_code);

}  // namespace hadal
