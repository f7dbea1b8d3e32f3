// Assigns a visible GPU to a process.
//
// A process sees the GPUs that its launcher grants it, numbered from 0: the driver applies CUDA_VISIBLE_DEVICES and
// renumbers in its order, and a batch system's control groups hide GPUs, too. One rule covers three ways to assign
// GPUs:
//
//   mpirun, srun --gres=gpu:8           every rank of a host sees all 8 in one order     rank i takes i
//   srun --gpus-per-task=1, wrappers    every rank sees one GPU of its own               rank i takes 0
//   srun --gpus-per-task=2              every rank sees two GPUs of its own              rank i takes one of its two
// Limitation: lists that overlap without being equal ("0,1" for one rank, "1,2" for the next) are not recognised; no
// launcher makes such lists.
#pragma once

namespace hadal::cuda {

// `local_rank`: the process's index among the job's on its host. REQUIRES: local_rank ≥ 0, visible > 0.
constexpr int ChooseVisibleDevice(int local_rank, int visible) { return local_rank % visible; }

}  // namespace hadal::cuda
