// The functions of cuBLASLt that hadal calls, loaded with dlopen, so that a program starts without CUDA's libraries.
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
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm;
  decltype(&cublasLtMatmulDescCreate) create_operation;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtGetVersion) version;
};

// Opens the library from the loader's path or the toolkit's folder; it is never closed. Errors: Unavailable if the
// library is not found or lacks a function.
absl::StatusOr<CublasLibrary> LoadCublasLibrary();

}  // namespace hadal::cuda
