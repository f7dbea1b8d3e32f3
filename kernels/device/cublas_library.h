// The functions of cuBLASLt that hadal calls, found with dlopen: a program needs no library of CUDA to start.
//
// Thread safety: a plain value.
#pragma once

#include <cublasLt.h>

#include "absl/status/statusor.h"

namespace hadal::cuda {

struct CublasLibrary {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_algorithm;
  decltype(&cublasLtMatmulDescCreate) create_operation;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtGetVersion) version;
};

// In the loader's path or where the toolkit puts it; it stays open to the end.
// Errors: Unavailable where it is not found or lacks one of them.
absl::StatusOr<CublasLibrary> LoadCublasLibrary();

}  // namespace hadal::cuda
