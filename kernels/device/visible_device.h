// Which of the GPUs that a process sees it takes.
//
// A process sees what its launcher leaves it, numbered from 0: CUDA_VISIBLE_DEVICES is the driver's own affair (it hides the others and
// renumbers in the list's order), and so are a batch system's control groups. So three ways to hand out GPUs need one rule:
//
//   mpirun, srun --gres=gpu:8           every rank of a host sees all 8 in one order     rank i takes i
//   srun --gpus-per-task=1, wrappers    every rank sees one GPU of its own               rank i takes 0
//   srun --gpus-per-task=2              every rank sees two GPUs of its own              rank i takes one of its two
//
// Not seen from here: lists that overlap without being equal ("0,1" for one rank, "1,2" for the next), which no launcher writes.
#pragma once

namespace hadal::cuda {

// `local_rank`: the process's number among the job's on its host.  REQUIRES: local_rank ≥ 0, visible > 0.
constexpr int ChooseVisibleDevice(int local_rank, int visible) { return local_rank % visible; }

}  // namespace hadal::cuda
