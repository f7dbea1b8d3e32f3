// cuBLASLt by its documentation, in plain loops: libcublasLt.so.<version> for programs that link the emulated CUDA runtime.
//
//   D = epilogue(alpha · op(A) · op(B) + beta · C + bias along D's rows)         all column-major, leading dimensions in elements
//
// As the reference of cublasLtMatmul has it: op(A) is [m, k], op(B) [k, n], the bias has m entries of D's type. ReLU with AUX writes a mask
// of m × n bits beside (columns AUX_LD bits apart, a multiple of 128; within one the order is this library's own, and the bits behind row m are
// set), DRELU reads one, BGRADB writes the n sums of op(B)'s columns over k, of D's type. It is strict where the library
// would misbehave: shapes and leading dimensions that do not fit, combinations of types outside of the documented table, an algorithm of
// another problem, pointers less aligned than its preference said, a bias epilogue without bias, memory that is not the device's, and a
// workspace smaller than asked for or not on 256 bytes end in an error status, and so does a bias that is not on 16 bytes: no document says
// so, but kernels of the library fault there, on an A100 too. The heuristic looks how a bias and a mask lie, and its algorithm takes none that
// lie worse. The workspace is overwritten, as an algorithm with split sums does. It can be told to have no algorithm for an epilogue.
// Only what hadal asks for is here: fp32 and bf16, host scalars, epilogues default, bias, ReLU, both, each with AUX, DRELU and BGRADB.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/support/emulated_cublas_lt.h"

#define HADAL_EXPORTED __attribute__((visibility("default")))

namespace {

hadal::testing::CublasLtSurroundings surroundings;

struct Layout {
  cudaDataType type;
  int64_t rows, columns, leading;
};

struct Description {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::byte* mask = nullptr;
  int64_t mask_leading = 0;
};

struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D: the library's defaults
};

// What a product is: its algorithm is good for no other.
struct Problem {
  Description description;
  Layout a, b, d;
  bool same_c_and_d;

  int64_t m() const { return d.rows; }
  int64_t n() const { return d.columns; }
  int64_t k() const { return description.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
};
int64_t MaskBytes(const Problem& p) { return p.n() * p.description.mask_leading / 8; }

// Lies in cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t problem;
  uint64_t workspace_bytes;
  uint32_t alignment[4];
  uint32_t bias_alignment, mask_alignment;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

constexpr uint64_t kWorkspaceBytes = 64 << 10;
constexpr uintptr_t kWorkspaceBoundary = 256;
constexpr uintptr_t kBiasBoundary = 16;
constexpr int kHandle = 0;

bool IsKnown(cublasLtEpilogue_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_BGRADB:
      return true;
    default:
      return false;
  }
}
bool HasBias(cublasLtEpilogue_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool HasRelu(cublasLtEpilogue_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_RELU) != 0; }
bool HasMask(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DRELU || (epilogue & CUBLASLT_EPILOGUE_RELU_AUX) == CUBLASLT_EPILOGUE_RELU_AUX;
}
bool IsGradient(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DRELU || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
// Of the vector that CUBLASLT_MATMUL_DESC_BIAS_POINTER names.
bool HasVector(cublasLtEpilogue_t epilogue) { return HasBias(epilogue) || epilogue == CUBLASLT_EPILOGUE_BGRADB; }

// What the library sees of a pointer: how it lies, up to 256.
uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint32_t>(std::min<uintptr_t>(256, address & -address));
}

int64_t BytesOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }
int64_t SpanBytes(const Layout& l) { return ((l.columns - 1) * l.leading + l.rows) * BytesOf(l.type); }

// A number that differs between problems (FNV-1a over its fields).
uint64_t NumberOf(const Problem& p) {
  uint64_t hash = 0xCBF29CE484222325u;
  const auto mix = [&](auto value) { hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3u; };
  for (const Layout& l : {p.a, p.b, p.d}) {
    for (const int64_t value : {static_cast<int64_t>(l.type), l.rows, l.columns, l.leading}) mix(value);
  }
  mix(p.description.compute);
  mix(p.description.transpose_a);
  mix(p.description.transpose_b);
  mix(p.description.epilogue);
  mix(p.description.mask_leading);
  return hash;
}

cublasStatus_t Check(const Problem& p) {
  for (const Layout& l : {p.a, p.b, p.d}) {
    if (l.rows < 1 || l.columns < 1 || l.leading < l.rows) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool turned_a = p.description.transpose_a == CUBLAS_OP_T, turned_b = p.description.transpose_b == CUBLAS_OP_T;
  const int64_t m = turned_a ? p.a.columns : p.a.rows, k_b = turned_b ? p.b.columns : p.b.rows;
  const int64_t n = turned_b ? p.b.rows : p.b.columns;
  if (m != p.m() || n != p.n() || k_b != p.k() || !p.same_c_and_d) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasLtEpilogue_t epilogue = p.description.epilogue;
  if (!IsKnown(epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (HasVector(epilogue) && p.description.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (HasMask(epilogue)) {
    const int64_t leading = p.description.mask_leading;
    if (p.description.mask == nullptr || leading % 128 != 0 || leading < p.m()) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (IsGradient(epilogue) && p.k() == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool narrow = p.a.type == CUDA_R_16BF;
  if (p.a.type != p.b.type || (p.d.type != CUDA_R_32F && p.d.type != p.a.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (narrow && p.description.compute != CUBLAS_COMPUTE_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

float Widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t Narrowed(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return 0x7FFF;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
// Ten bits of fraction, as tf32 keeps.
float RoundedToTf32(float x) { return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000) & 0xFFFFE000); }

float At(const void* data, cudaDataType type, int64_t i) {
  return type == CUDA_R_32F ? static_cast<const float*>(data)[i] : Widened(static_cast<const uint16_t*>(data)[i]);
}

struct Operands {
  const void *a, *b;
  void* d;
  float alpha, beta;
  void* workspace;
};

void Store(void* data, cudaDataType type, int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<uint16_t*>(data)[i] = Narrowed(value);
  }
}

// D's element (i, j) behind the epilogue.
float Finished(const Problem& p, float value, int64_t i, int64_t j) {
  const Description& x = p.description;
  if (HasBias(x.epilogue)) value += At(x.bias, p.d.type, i);
  if (HasRelu(x.epilogue)) value = std::max(value, 0.0f);
  if (!HasMask(x.epilogue)) return value;
  const int64_t place = j * x.mask_leading + (i ^ 3);  // a multiple of four is a whole one of 128
  std::byte& byte = x.mask[place / 8];
  const std::byte bit = std::byte{1} << place % 8;
  if (x.epilogue == CUBLASLT_EPILOGUE_DRELU) return (byte & bit) == std::byte{0} ? 0.0f : value;
  byte = value > 0.0f ? byte | bit : byte & ~bit;
  return value;
}

void Multiply(const Problem& p, const Operands& x) {
  const bool tf32 = p.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  // op(M) as [rows, depth], where `turned` says that M is stored [depth, rows].
  const auto values = [&](const void* data, const Layout& l, int64_t rows, bool turned) {
    std::vector<float> all(rows * p.k());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < p.k(); ++j) {
        const float value = At(data, l.type, turned ? i * l.leading + j : j * l.leading + i);
        all[i * p.k() + j] = tf32 ? RoundedToTf32(value) : value;
      }
    }
    return all;
  };
  const std::vector<float> a = values(x.a, p.a, p.m(), p.description.transpose_a == CUBLAS_OP_T);
  const std::vector<float> b = values(x.b, p.b, p.n(), p.description.transpose_b == CUBLAS_OP_N);
  std::memset(x.workspace, 0xFF, kWorkspaceBytes);
  if (HasMask(p.description.epilogue) && HasRelu(p.description.epilogue)) {
    std::memset(p.description.mask, 0xFF, MaskBytes(p));
  }
  for (int64_t j = 0; j < p.n(); ++j) {
    for (int64_t i = 0; i < p.m(); ++i) {
      float sum = 0.0f;
      for (int64_t depth = 0; depth < p.k(); ++depth) sum += a[i * p.k() + depth] * b[j * p.k() + depth];
      const int64_t place = j * p.d.leading + i;
      float value = x.alpha * sum;
      if (x.beta != 0.0f) value += x.beta * At(x.d, p.d.type, place);
      Store(x.d, p.d.type, place, Finished(p, value, i, j));
    }
    if (p.description.epilogue != CUBLASLT_EPILOGUE_BGRADB) continue;
    float sum = 0.0f;
    for (int64_t depth = 0; depth < p.k(); ++depth) sum += b[j * p.k() + depth];
    Store(p.description.bias, p.d.type, j, sum);
  }
}

Problem ProblemOf(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                  cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {*reinterpret_cast<const Description*>(description), *reinterpret_cast<const Layout*>(a),
          *reinterpret_cast<const Layout*>(b), *reinterpret_cast<const Layout*>(d), c == d};
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
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{.compute = compute});
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete reinterpret_cast<Description*>(description);
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                                             cublasLtMatmulDescAttributes_t attribute,
                                                             const void* value, size_t bytes) {
  auto& description = *reinterpret_cast<Description*>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(description.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(description.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(description.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(description.bias, value, bytes);
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
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                                   cublasLtMatmulPreferenceAttributes_t attribute,
                                                                   const void* value, size_t bytes) {
  auto& preference = *reinterpret_cast<Preference*>(handle);
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
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                                             cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                             cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                             cublasLtMatmulPreference_t preference, int wanted,
                                                             cublasLtMatmulHeuristicResult_t* results, int* found) {
  const Problem problem = ProblemOf(description, a, b, c, d);
  const auto& asked = *reinterpret_cast<const Preference*>(preference);
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = Check(problem); status != CUBLAS_STATUS_SUCCESS) return status;
  if (asked.workspace_bytes < kWorkspaceBytes) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!surroundings.offers(problem.description.epilogue)) return CUBLAS_STATUS_SUCCESS;  // none found
  Algorithm algorithm{.problem = NumberOf(problem),
                      .workspace_bytes = kWorkspaceBytes,
                      .bias_alignment = AlignmentOf(problem.description.bias),
                      .mask_alignment = AlignmentOf(problem.description.mask)};
  std::copy_n(asked.alignment, 4, algorithm.alignment);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof(algorithm));
  results[0].workspaceSize = kWorkspaceBytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

HADAL_EXPORTED cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                                             const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                             cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                             cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                                             const cublasLtMatmulAlgo_t* chosen, void* workspace,
                                             size_t workspace_bytes, cudaStream_t stream) {
  const Problem problem = ProblemOf(description, a_layout, b_layout, c_layout, d_layout);
  if (const cublasStatus_t status = Check(problem); status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm algorithm;
  std::memcpy(&algorithm, chosen, sizeof(algorithm));
  if (algorithm.problem != NumberOf(problem) || workspace_bytes < algorithm.workspace_bytes || c != d ||
      reinterpret_cast<uintptr_t>(workspace) % kWorkspaceBoundary != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const void* const matrices[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(matrices[i]) % algorithm.alignment[i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cublasLtEpilogue_t epilogue = problem.description.epilogue;
  const void* const bias = HasVector(epilogue) ? problem.description.bias : nullptr;
  const void* const mask = HasMask(epilogue) ? problem.description.mask : nullptr;
  if (reinterpret_cast<uintptr_t>(bias) % kBiasBoundary != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (bias != nullptr && AlignmentOf(bias) < algorithm.bias_alignment) return CUBLAS_STATUS_INVALID_VALUE;
  if (mask != nullptr && AlignmentOf(mask) < algorithm.mask_alignment) return CUBLAS_STATUS_INVALID_VALUE;
  const int64_t entries = HasBias(epilogue) ? problem.m() : problem.n();
  const bool owned = surroundings.owns(a, SpanBytes(problem.a)) && surroundings.owns(b, SpanBytes(problem.b)) &&
                     surroundings.owns(d, SpanBytes(problem.d)) &&
                     surroundings.owns(workspace, static_cast<int64_t>(algorithm.workspace_bytes)) &&
                     (bias == nullptr || surroundings.owns(bias, entries * BytesOf(problem.d.type))) &&
                     (mask == nullptr || surroundings.owns(mask, MaskBytes(problem)));
  if (!owned) return CUBLAS_STATUS_INVALID_VALUE;
  const Operands operands{a, b, d, *static_cast<const float*>(alpha), *static_cast<const float*>(beta), workspace};
  surroundings.enqueue(stream, [problem, operands] { Multiply(problem, operands); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
