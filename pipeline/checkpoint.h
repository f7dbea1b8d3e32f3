// Checkpoints: save at any layout, load at any other, and never load a bad one. This header is the door; the parts are
//
//   checkpoint_state.h      what is saved: slices of parameters and Adam's moments, and their keys
//   checkpoint_manifest.h   the manifest that makes a directory a checkpoint
//   checkpoint_file.h       one directory's files, streamed
//   checkpoint_writer.h     every rank writes its slices, rank 0 commits
//   checkpoint_reader.h     read any slices, verify everything
//   checkpoint_directory.h  names, `latest` and `best`, retention, finding the newest good one
//
// How a trainer saves (rank 0's part marked 0):
//   auto file = writer.WriteRankFile(step, rank, slices);
//   collectives.AllOk(file.status());  texts = collectives.AllGather(file->ToString());
//   0: writer.Commit({.progress = …, .files = parsed texts})   or, when a rank failed, writer.Abandon(step)
// How it resumes:
//   0: found = FindLatest(run_directory); broadcast found->checkpoint.directory
//   reader = CheckpointReader::Open(directory); CompareParameters(reader.manifest().parameters,
//   DescribeParameters(plan)); reader.ReadSlices(my slices);  collectives.AllOk(…), and on failure again with
//   before_step.
#pragma once

#include "pipeline/checkpoint_directory.h"
#include "pipeline/checkpoint_file.h"
#include "pipeline/checkpoint_manifest.h"
#include "pipeline/checkpoint_reader.h"
#include "pipeline/checkpoint_state.h"
#include "pipeline/checkpoint_writer.h"
