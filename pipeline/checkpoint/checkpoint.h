// Checkpoints: save with any layout, load with any other, and never load a damaged one. This header includes the parts:
//
//   checkpoint_state.h      what is saved: slices of parameters and of Adam's moments, and their keys
//   checkpoint_manifest.h   the manifest that makes a directory a checkpoint
//   checkpoint_file.h       streams slices into one directory's files
//   checkpoint_writer.h     every rank writes its slices, rank 0 commits
//   checkpoint_reader.h     reads any slices, verifies everything
//   checkpoint_directory.h  names, `latest` and `best`, retention, search for the newest good one
//
// training_checkpoints.h saves and loads on all ranks together, while training continues (background_file.h writes a
// rank's file on a thread of its own); save_cycle.h decides when. A tool without ranks opens a checkpoint with a
// CheckpointReader, as model_checkpoint.h does.
#pragma once

#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/checkpoint_state.h"
#include "pipeline/checkpoint/checkpoint_writer.h"
