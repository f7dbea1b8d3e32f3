// `hadal checkpoint` lists, verifies, compares, averages, exports and imports checkpoints. No MPI. Memory: few slices.
//
//   hadal checkpoint ls RUN_OR_DIR                     the checkpoints of a run, or what one holds
//   hadal checkpoint verify RUN_OR_DIR                 reads every byte and compares every checksum
//   hadal checkpoint diff A B [--weights-only]         weights and moments, bit by bit; "identical" or where they
//                                                      differ
//   hadal checkpoint export DIR --out M.safetensors    fairseq's names and shapes, vocabularies and settings beside it
//   hadal checkpoint export DIR --format F --out DIR   for Hugging Face transformers, CTranslate2 or fairseq
//   hadal checkpoint import SOURCE --out DIR           the way back; also models that those programs trained
//   hadal checkpoint average DIR… --out DIR            mean of the weights of several checkpoints
//   hadal checkpoint average RUN --last N | --best N --out DIR
// Where one checkpoint is expected, a run directory means its newest readable one.
// Exit codes: 0 done or identical, 1 error or different, 2 bad usage, 3 a checkpoint is damaged.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callbacks store the exit code.  `exit_code` must outlive the parsing of `app`.
void AddCheckpointCommand(Command app, int& exit_code);

}  // namespace hadal
