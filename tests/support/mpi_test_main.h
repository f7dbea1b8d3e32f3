// The main function of tests that mpirun starts (hadal_mpi_test in cmake/HadalTargets.cmake links it), and their MPI
// environment.
#pragma once

#include "runtime/comm/mpi_environment.h"

namespace hadal::testing {

// Valid while tests run.
const MpiEnvironment& TestMpiEnvironment();

}  // namespace hadal::testing
