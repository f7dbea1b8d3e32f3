#include "kernels/cuda_host/cublas_library.h"

#include <dlfcn.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal::cuda {
namespace {

// What the library writes, of every version from CUDA 12.2 to 13.0.
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96);
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, algo) == 0);
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == 72);

absl::StatusOr<void*> OpenLibrary() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  const std::string places[] = {name, absl::StrCat("/usr/local/cuda/lib64/", name)};
  std::string errors;
  for (const std::string& place : places) {
    // Never closed: its static objects do not support that.
    if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
    absl::StrAppend(&errors, errors.empty() ? "" : "; ", dlerror());
  }
  return UnavailableError("cuBLASLt is not found (", errors, "); add the folder of ", name, " to LD_LIBRARY_PATH");
}

}  // namespace

absl::StatusOr<CublasLibrary> LoadCublasLibrary() {
  HADAL_ASSIGN_OR_RETURN(void* const handle, OpenLibrary());
  std::string missing;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) absl::StrAppend(&missing, " ", name);
  };
  CublasLibrary library{};
  load(library.create, "cublasLtCreate");
  load(library.destroy, "cublasLtDestroy");
  load(library.matmul, "cublasLtMatmul");
  load(library.choose, "cublasLtMatmulAlgoGetHeuristic");
  load(library.get_algorithm, "cublasLtMatmulAlgoConfigGetAttribute");
  load(library.check_algorithm, "cublasLtMatmulAlgoCheck");
  load(library.create_operation, "cublasLtMatmulDescCreate");
  load(library.destroy_operation, "cublasLtMatmulDescDestroy");
  load(library.set_operation, "cublasLtMatmulDescSetAttribute");
  load(library.create_layout, "cublasLtMatrixLayoutCreate");
  load(library.destroy_layout, "cublasLtMatrixLayoutDestroy");
  load(library.set_layout, "cublasLtMatrixLayoutSetAttribute");
  load(library.create_preference, "cublasLtMatmulPreferenceCreate");
  load(library.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  load(library.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  load(library.status_string, "cublasLtGetStatusString");
  load(library.version, "cublasLtGetVersion");
  if (!missing.empty()) return UnavailableError("this cuBLASLt lacks", missing);
  return library;
}

}  // namespace hadal::cuda
