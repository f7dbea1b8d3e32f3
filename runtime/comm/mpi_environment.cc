#include "runtime/comm/mpi_environment.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

constexpr int kPeerLostExitCode = 6;

}  // namespace

absl::StatusOr<std::unique_ptr<MpiEnvironment>> MpiEnvironment::Start(int* argc, char*** argv,
                                                                      absl::Duration end_timeout) {
  int started = 0;
  MPI_Initialized(&started);
  if (started) return absl::FailedPreconditionError("MPI was started before; a process has one MpiEnvironment");

  // If a process cannot read another's memory (many containers), Open MPI sends a large message in fragments of 32 KiB,
  // at most 3 ahead of the receiver's progress, which is very slow between ranks that sleep and compute. 64 fragments
  // are a whole border message: measured 8 to 12 times as fast. Settings of mpirun and of the user take precedence.
  setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "64", /*overwrite=*/0);
  // A rank with a GPU starts NCCL's receives before their senders know of them. These kernels wait on the GPU; with too
  // few hardware queues another stream that shares a queue with them would wait, too: a deadlock. CUDA reads the
  // setting when it starts, and a CUDA-aware MPI starts CUDA here. A run over NCCL is refused with another value
  // (launch/transport_choice.h).
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  const int error = MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
  if (error != MPI_SUCCESS) return absl::InternalError(absl::StrCat("MPI_Init_thread failed with error ", error));
  if (provided < MPI_THREAD_FUNNELED) {
    return absl::InternalError(absl::StrCat("this MPI does not support threads (level ", provided, ", needed ",
                                            MPI_THREAD_FUNNELED, "); use an MPI built with thread support"));
  }
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::unique_ptr<MpiEnvironment>(new MpiEnvironment(rank, size, end_timeout));
}

MpiEnvironment::~MpiEnvironment() {
  if (!AllRanksReachedTheEnd()) {
    std::fprintf(stderr, "rank %d: not all of %d ranks finished within %s; ending the job\n", rank_, size_,
                 absl::FormatDuration(end_timeout_).c_str());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, kPeerLostExitCode);
  }
  MPI_Finalize();
}

bool MpiEnvironment::AllRanksReachedTheEnd() const {
  MPI_Request barrier;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &barrier) != MPI_SUCCESS) return false;
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    int done = 0;
    if (MPI_Test(&barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done) return true;
    if (absl::FromChrono(std::chrono::steady_clock::now() - start) >= end_timeout_) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

absl::StatusOr<RankPlacement> MpiEnvironment::FindPlacement() const {
  RankPlacement placement;
  MPI_Comm host;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host) != MPI_SUCCESS) {
    return absl::InternalError(absl::StrCat("rank ", rank_, ": MPI cannot determine which ranks share this host"));
  }
  MPI_Comm_rank(host, &placement.local_rank);
  MPI_Comm_size(host, &placement.ranks_on_host);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof(mine), &mine);
  std::vector<cpu_set_t> all(placement.ranks_on_host);
  if (MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, host) != MPI_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("rank ", rank_, ": MPI cannot exchange the CPU masks of this host's ranks"));
  }
  const auto shares = [&mine](const cpu_set_t& other) {
    cpu_set_t both;
    CPU_AND(&both, &mine, &other);
    return CPU_COUNT(&both) > 0;
  };
  // A mask that could not be read is empty.
  placement.ranks_on_cpus = std::max(1, static_cast<int>(std::count_if(all.begin(), all.end(), shares)));
  MPI_Comm_free(&host);
  return placement;
}

}  // namespace hadal
