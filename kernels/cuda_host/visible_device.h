// Which of its visible GPUs a process takes.
//
// A process sees the GPUs that its launcher leaves it, numbered from 0. CUDA_VISIBLE_DEVICES is handled by the driver,
// which hides the other GPUs and renumbers in the list's order; a batch system's control groups hide GPUs too. So one
// rule serves three ways to hand out GPUs:
//
//   mpirun, srun --gres=gpu:8           every rank of a host sees all 8 in one order     rank i takes i
//   srun --gpus-per-task=1, wrappers    every rank sees one GPU of its own               rank i takes 0
//   srun --gpus-per-task=2              every rank sees two GPUs of its own              rank i takes one of its two
//
// Limitation: lists that overlap without being equal ("0,1" for one rank, "1,2" for the next) cannot be recognised; no
// launcher makes such lists.
#pragma once

namespace hadal::cuda {

// `local_rank`: the process's number among the job's on its host.  REQUIRES: local_rank ≥ 0, visible > 0.
constexpr int ChooseVisibleDevice(int local_rank, int visible) { return local_rank % visible; }

}  // namespace hadal::cuda
