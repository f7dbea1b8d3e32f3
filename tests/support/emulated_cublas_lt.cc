// cuBLASLt by its documentation: libcublasLt.so.<version> for programs that link the emulated CUDA runtime.
//
//   D = epilogue(alpha · op(A) · op(B) + beta · C + bias along D's rows)         all column-major, leading dimensions
//                                                                                in elements
//
// What a product is: emulated_cublas_product.h. The library is strict where NVIDIA's would misbehave: shapes and
// leading dimensions that do not fit, combinations of types outside of the documented table, an algorithm of another
// problem, pointers less aligned than its preference said, an epilogue without its bias or mask, memory that is not the
// device's, and a workspace smaller than asked for or not on 256 bytes end in an error status, and so does a bias that
// is not on 16 bytes: no document says so, but kernels of the library fault there, on an A100 too. The heuristic looks
// how a bias and a mask lie, and its algorithm takes none that lie worse. For a strided batch it chooses another order
// of sums than for one product. The workspace is overwritten, as an algorithm with split sums does. It can be told to
// have no algorithm for an epilogue, or one of another kind. Only what hadal asks for is here: strided batches, fp32
// and bf16, host scalars, epilogues default, bias, ReLU, both, each with AUX, DRELU and BGRADB.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>

#include "tests/support/emulated_cublas_lt.h"
#include "tests/support/emulated_cublas_product.h"

#define HADAL_EXPORTED __attribute__((visibility("default")))

namespace {

using hadal::testing::CublasLtDescription;
using hadal::testing::CublasLtLayout;
using hadal::testing::CublasLtOperands;
using hadal::testing::CublasLtPreference;
using hadal::testing::CublasLtProblem;

hadal::testing::CublasLtSurroundings surroundings;

// Lies in cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t problem;
  uint64_t workspace_bytes;
  uint32_t alignment[4];
  uint32_t bias_alignment, mask_alignment;
  int32_t kind, parts;
  bool adds_parts_in_d_type, descending;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

constexpr uint64_t kWorkspaceBytes = 64 << 10;
constexpr uintptr_t kWorkspaceBoundary = 256;
constexpr uintptr_t kBiasBoundary = 16;
constexpr int32_t kKinds[] = {66, 21};  // CUBLASLT_ALGO_CONFIG_ID: of most, of those that differ
constexpr int kHandle = 0;

// What the library sees of a pointer: how it lies, up to 256.
uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint32_t>(std::min<uintptr_t>(256, address & -address));
}

// A number that differs between problems, not between numbers of products in a batch (FNV-1a over the fields).
uint64_t NumberOf(const CublasLtProblem& p) {
  uint64_t hash = 0xCBF29CE484222325u;
  const auto mix = [&](auto value) { hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3u; };
  for (const CublasLtLayout& l : {p.a, p.b, p.d}) {
    for (const int64_t value : {static_cast<int64_t>(l.type), l.rows, l.columns, l.leading}) mix(value);
  }
  mix(p.description.compute);
  mix(p.description.transpose_a);
  mix(p.description.transpose_b);
  mix(p.description.epilogue);
  mix(p.description.mask_leading);
  return hash;
}

CublasLtProblem ProblemOf(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                          cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {*reinterpret_cast<const CublasLtDescription*>(description), *reinterpret_cast<const CublasLtLayout*>(a),
          *reinterpret_cast<const CublasLtLayout*>(b), *reinterpret_cast<const CublasLtLayout*>(d), c == d};
}

template <typename T>
cublasStatus_t Set(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

HADAL_EXPORTED void HadalConnectCublasLt(const hadal::testing::CublasLtSurroundings* of_program) {
  surroundings = *of_program;
}

HADAL_EXPORTED cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(const_cast<int*>(&kHandle));
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED size_t cublasLtGetVersion() {
  return size_t{CUBLAS_VER_MAJOR} * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH;
}

HADAL_EXPORTED cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

HADAL_EXPORTED const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "another status of the emulated library";
  }
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                                       cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new CublasLtDescription{.compute = compute});
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete reinterpret_cast<CublasLtDescription*>(description);
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                                             cublasLtMatmulDescAttributes_t attribute,
                                                             const void* value, size_t bytes) {
  auto& description = *reinterpret_cast<CublasLtDescription*>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(description.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(description.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(description.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(description.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return Set(description.bias_step, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return Set(description.mask, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return Set(description.mask_leading, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

HADAL_EXPORTED cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                                         uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new CublasLtLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<CublasLtLayout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                               cublasLtMatrixLayoutAttribute_t attribute,
                                                               const void* value, size_t bytes) {
  auto& layout = *reinterpret_cast<CublasLtLayout*>(handle);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Set(layout.count, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Set(layout.step, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new CublasLtPreference);
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<CublasLtPreference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                                   cublasLtMatmulPreferenceAttributes_t attribute,
                                                                   const void* value, size_t bytes) {
  auto& preference = *reinterpret_cast<CublasLtPreference*>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(preference.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Set(preference.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Set(preference.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Set(preference.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Set(preference.alignment[3], value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Set(preference.reductions, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                                             cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                             cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                             cublasLtMatmulPreference_t preference, int wanted,
                                                             cublasLtMatmulHeuristicResult_t* results, int* found) {
  const CublasLtProblem problem = ProblemOf(description, a, b, c, d);
  const auto& asked = *reinterpret_cast<const CublasLtPreference*>(preference);
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (surroundings.records()) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (const cublasStatus_t status = hadal::testing::CheckProblem(problem); status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (asked.workspace_bytes < kWorkspaceBytes) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!surroundings.offers(problem.description.epilogue)) return CUBLAS_STATUS_SUCCESS;  // none found
  Algorithm algorithm{.problem = NumberOf(problem),
                      .workspace_bytes = kWorkspaceBytes,
                      .bias_alignment = AlignmentOf(problem.description.bias),
                      .mask_alignment = AlignmentOf(problem.description.mask),
                      .kind = kKinds[surroundings.differs(problem.description.epilogue) ? 1 : 0],
                      .parts = surroundings.splits(problem.description.epilogue) ? 4 : 1,
                      .adds_parts_in_d_type = (asked.reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0,
                      .descending = problem.d.count > 1};
  std::copy_n(asked.alignment, 4, algorithm.alignment);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof(algorithm));
  results[0].workspaceSize = kWorkspaceBytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// Each product of a batch has the workspace of one.
HADAL_EXPORTED cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                      const cublasLtMatmulAlgo_t* chosen,
                                                      cublasLtMatmulHeuristicResult_t* result) {
  const CublasLtProblem problem = ProblemOf(description, a, b, c, d);
  if (const cublasStatus_t status = hadal::testing::CheckProblem(problem); status != CUBLAS_STATUS_SUCCESS)
    return status;
  Algorithm algorithm;
  std::memcpy(&algorithm, chosen, sizeof(algorithm));
  if (algorithm.problem != NumberOf(problem)) return CUBLAS_STATUS_INVALID_VALUE;
  if (problem.d.count > surroundings.most_together()) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->workspaceSize = problem.d.count * algorithm.workspace_bytes;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* chosen,
                                                                   cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                                   void* value, size_t bytes, size_t* written) {
  Algorithm algorithm;
  std::memcpy(&algorithm, chosen, sizeof(algorithm));
  if (bytes != sizeof(int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      std::memcpy(value, &algorithm.kind, bytes);
      break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      std::memcpy(value, &algorithm.parts, bytes);
      break;
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (written != nullptr) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                                             const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                             cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                             cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                                             const cublasLtMatmulAlgo_t* chosen, void* workspace,
                                             size_t workspace_bytes, cudaStream_t stream) {
  const CublasLtProblem problem = ProblemOf(description, a_layout, b_layout, c_layout, d_layout);
  if (const cublasStatus_t status = hadal::testing::CheckProblem(problem); status != CUBLAS_STATUS_SUCCESS)
    return status;
  Algorithm algorithm;
  std::memcpy(&algorithm, chosen, sizeof(algorithm));
  const uint64_t used_bytes = problem.d.count * algorithm.workspace_bytes;
  if (problem.d.count > surroundings.most_together()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algorithm.problem != NumberOf(problem) || workspace_bytes < used_bytes || c != d ||
      reinterpret_cast<uintptr_t>(workspace) % kWorkspaceBoundary != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const void* const matrices[] = {a, b, c, d};
  const int64_t steps[] = {StepBytes(problem.a), StepBytes(problem.b), StepBytes(problem.d), StepBytes(problem.d)};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(matrices[i]) % algorithm.alignment[i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (steps[i] % algorithm.alignment[i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const void* const bias = problem.has_vector() ? problem.description.bias : nullptr;
  const void* const mask = problem.has_mask() ? problem.description.mask : nullptr;
  if (reinterpret_cast<uintptr_t>(bias) % kBiasBoundary != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (bias != nullptr && AlignmentOf(bias) < algorithm.bias_alignment) return CUBLAS_STATUS_INVALID_VALUE;
  if (mask != nullptr && AlignmentOf(mask) < algorithm.mask_alignment) return CUBLAS_STATUS_INVALID_VALUE;
  const bool owned = surroundings.owns(a, SpanBytes(problem.a)) && surroundings.owns(b, SpanBytes(problem.b)) &&
                     surroundings.owns(d, SpanBytes(problem.d)) &&
                     surroundings.owns(workspace, static_cast<int64_t>(used_bytes)) &&
                     (bias == nullptr || surroundings.owns(bias, problem.vector_bytes())) &&
                     (mask == nullptr || surroundings.owns(mask, problem.mask_bytes()));
  if (!owned) return CUBLAS_STATUS_INVALID_VALUE;
  const CublasLtOperands operands{a,
                                  b,
                                  d,
                                  *static_cast<const float*>(alpha),
                                  *static_cast<const float*>(beta),
                                  algorithm.adds_parts_in_d_type,
                                  algorithm.descending};
  surroundings.enqueue(stream, [problem, operands, workspace, used_bytes] {
    std::memset(workspace, 0xFF, used_bytes);
    Multiply(problem, operands);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
