// What tests over NCCL itself run in: MPI's ranks, each a process with a GPU, and the library.
//
// With fewer GPUs than ranks NCCL refuses ("Duplicate GPU detected") unless the ranks look like different hosts: NCCL_HOSTID is then set to
// the rank and everything goes over sockets, for what can be learnt so of order, errors and bits; times mean nothing.
// The program ends with status 77, skipped, where there is no device or no NCCL.
#pragma once

#include "runtime/comm/mpi_environment.h"
#include "runtime/comm/nccl_library.h"
#include "runtime/device.h"

namespace hadal::testing {

struct NcclTestSurroundings {
  const MpiEnvironment* environment = nullptr;
  Device* device = nullptr;
  NcclLibrary* library = nullptr;
};

// Valid while tests run.
const NcclTestSurroundings& NcclHere();

}  // namespace hadal::testing
