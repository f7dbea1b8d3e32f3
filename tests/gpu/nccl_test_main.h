// What tests over NCCL itself run in: ranks that are processes with a GPU each, and the library. mpirun starts several;
// a program started by itself is one rank and starts no MPI, so that it runs where Open MPI's plugins are not
// installed.
//
// With fewer GPUs than ranks NCCL refuses ("Duplicate GPU detected") unless the ranks look like different hosts:
// NCCL_HOSTID is then set to the rank and everything goes over sockets, for what can be learnt so of order, errors and
// bits; times mean nothing. The program ends with status 77, skipped, where there is no device or no NCCL.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/mpi_environment.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/device.h"

namespace hadal::testing {

struct NcclTestSurroundings {
  const MpiEnvironment* environment = nullptr;  // null: one rank, by itself
  Device* device = nullptr;
  NcclLibrary* library = nullptr;
};

// Valid while tests run.
const NcclTestSurroundings& NcclHere();

// A new communicator of the host's memory among the ranks. Blocking: all ranks make theirs together.
class NcclTestHost {
 public:
  NcclTestHost();

  Communicator& communicator() { return mpi_ != nullptr ? *mpi_ : alone_.communicator(0); }

 private:
  std::unique_ptr<Communicator> mpi_;
  InProcessWorld alone_{1};
};

}  // namespace hadal::testing
