// Checkpoints: save at any layout, load at any other, and never load a bad one. This header is the door; the parts are
//
//   checkpoint_state.h      what is saved: slices of parameters and Adam's moments, and their keys
//   checkpoint_manifest.h   the manifest that makes a directory a checkpoint
//   checkpoint_file.h       one directory's files, streamed
//   checkpoint_writer.h     every rank writes its slices, rank 0 commits
//   checkpoint_reader.h     read any slices, verify everything
//   checkpoint_directory.h  names, `latest` and `best`, retention, finding the newest good one
//
// All ranks together: training_checkpoints.h saves while training goes on (each rank's file by a thread of its own,
// background_file.h) and loads the newest good one; save_cycle.h says when. A tool without ranks opens one with a
// CheckpointReader, as model_checkpoint.h does.
#pragma once

#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/checkpoint_state.h"
#include "pipeline/checkpoint/checkpoint_writer.h"
