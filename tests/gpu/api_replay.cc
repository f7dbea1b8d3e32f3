#include "tests/gpu/api_replay.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda_host/cublas_library.h"
#include "kernels/cuda_host/cublas_matmul.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tests/gpu/empty_kernel.h"

namespace hadal::testing {
namespace {

constexpr int kAlignments = 17, kBatch = kAlignments + 4, kProductFields = kBatch + 5;

// The arguments of a call.
using Arguments = std::vector<std::string>;

int64_t Number(const std::string& text) {
  int64_t number = 0;
  HADAL_CHECK(absl::SimpleAtoi(text, &number));
  return number;
}

class Replay {
 public:
  explicit Replay(const cuda::CublasLibrary& library) : library_(library) { library_.create(&handle_); }
  ~Replay();

  // Makes one call. Returns what went wrong, or "". A call that uses what a refused call would have made is left out.
  std::string Call(const std::string& function, const Arguments& arguments);

 private:
  std::string Made(const std::string& function, const Arguments& arguments);

  struct Product {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    bool found = false;
  };

  cudaError_t CallRuntime(const std::string& function, const Arguments& of);
  cudaError_t CallForResiduals(const std::string& function, const Arguments& of);
  cudaError_t CallForGraphs(const std::string& function, const Arguments& of);
  cublasStatus_t Search(const Arguments& of);
  cublasStatus_t Multiply(const Arguments& of);
  cublasStatus_t MakeProduct(const Arguments& of, Product& product) const;
  // Several products in one call, with the algorithm of one.
  cublasStatus_t MakeBatch(const Arguments& of);
  cublasStatus_t SetPlaces(const Product& product, const std::string& bias, const std::string& mask);

  cudaStream_t Stream(const std::string& name) const { return streams_.at(name); }
  // "d3+512"; "h" is host memory that is not pinned, `bytes` of it.
  void* Place(const std::string& text, int64_t bytes = 0);

  const cuda::CublasLibrary library_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<std::string, cudaStream_t> streams_;
  std::map<std::string, cudaEvent_t> events_;
  std::map<std::string, cudaGraph_t> recorded_;
  std::map<std::string, cudaGraphExec_t> graphs_;
  std::map<std::string, void*> memory_;
  std::map<std::string, Product> products_;  // by their fields
  std::vector<std::byte> host_;
};

Replay::~Replay() {
  for (const auto& [key, product] : products_) {
    library_.destroy_operation(product.operation);
    for (cublasLtMatrixLayout_t layout : {product.a, product.b, product.d}) library_.destroy_layout(layout);
  }
  library_.destroy(handle_);
}

void* Replay::Place(const std::string& text, int64_t bytes) {
  if (text == "h") {
    if (std::ssize(host_) < bytes) host_.resize(bytes);
    return host_.data();
  }
  const std::vector<std::string> parts = absl::StrSplit(text, '+');
  return static_cast<std::byte*>(memory_.at(parts[0])) + Number(parts[1]);
}

cudaError_t Replay::CallRuntime(const std::string& function, const Arguments& of) {
  int first = 0, second = 0;
  size_t free = 0, total = 0;
  cudaDeviceProp properties;
  if (function == "cudaDriverGetVersion") return cudaDriverGetVersion(&first);
  if (function == "cudaGetDeviceCount") return cudaGetDeviceCount(&first);
  if (function == "cudaSetDevice") return cudaSetDevice(static_cast<int>(Number(of[0])));
  if (function == "cudaGetDeviceProperties")
    return cudaGetDeviceProperties(&properties, static_cast<int>(Number(of[0])));
  if (function == "cudaDeviceGetStreamPriorityRange") return cudaDeviceGetStreamPriorityRange(&first, &second);
  if (function == "cudaMemGetInfo") return cudaMemGetInfo(&free, &total);
  if (function == "cudaMalloc") return cudaMalloc(&memory_[of[0]], Number(of[1]));
  if (function == "cudaHostAlloc") return cudaHostAlloc(&memory_[of[0]], Number(of[1]), Number(of[2]));
  if (function == "cudaFree") return cudaFree(Place(of[0]));
  if (function == "cudaFreeHost") return cudaFreeHost(Place(of[0]));
  if (function == "cudaMemcpyAsync") {
    const int64_t bytes = Number(of[2]);
    return cudaMemcpyAsync(Place(of[0], bytes), Place(of[1], bytes), bytes, static_cast<cudaMemcpyKind>(Number(of[3])),
                           Stream(of[4]));
  }
  if (function == "cudaMemsetAsync") {
    return cudaMemsetAsync(Place(of[0]), static_cast<int>(Number(of[1])), Number(of[2]), Stream(of[3]));
  }
  if (function == "launch") {
    return LaunchEmptyKernel(Stream(of[3]), Number(of[0]), Number(of[1]), static_cast<int>(Number(of[2])));
  }
  return CallForResiduals(function, of);
}

// Queries until the event is reached. The recording host had seen it reached before it used or destroyed what the event
// guards.
cudaError_t AwaitEvent(cudaEvent_t event) {
  cudaError_t error = cudaEventQuery(event);
  while (error == cudaErrorNotReady) {
    cudaGetLastError();  // clears it for the next launch
    error = cudaEventQuery(event);
  }
  return error;
}

cudaError_t Replay::CallForResiduals(const std::string& function, const Arguments& of) {
  if (function == "cudaStreamCreateWithFlags") return cudaStreamCreateWithFlags(&streams_[of[0]], Number(of[1]));
  if (function == "cudaStreamCreateWithPriority") {
    return cudaStreamCreateWithPriority(&streams_[of[0]], Number(of[1]), static_cast<int>(Number(of[2])));
  }
  if (function == "cudaStreamDestroy") return cudaStreamDestroy(Stream(of[0]));
  if (function == "cudaStreamSynchronize") return cudaStreamSynchronize(Stream(of[0]));
  if (function == "cudaStreamQuery") return cudaStreamQuery(Stream(of[0]));
  if (function == "cudaStreamWaitEvent") return cudaStreamWaitEvent(Stream(of[0]), events_.at(of[1]), Number(of[2]));
  if (function == "cudaEventCreateWithFlags") return cudaEventCreateWithFlags(&events_[of[0]], Number(of[1]));
  if (function == "cudaEventDestroy") return cudaEventDestroy(events_.at(of[0]));
  if (function == "cudaEventRecord") return cudaEventRecord(events_.at(of[0]), Stream(of[1]));
  if (function == "cudaEventQuery") return AwaitEvent(events_.at(of[0]));
  if (function == "cudaEventElapsedTime") {
    const cudaError_t error = AwaitEvent(events_.at(of[1]));
    float milliseconds = 0;
    return error != cudaSuccess ? error : cudaEventElapsedTime(&milliseconds, events_.at(of[0]), events_.at(of[1]));
  }
  return CallForGraphs(function, of);
}

cudaError_t Replay::CallForGraphs(const std::string& function, const Arguments& of) {
  if (function == "cudaStreamBeginCapture") {
    return cudaStreamBeginCapture(Stream(of[0]), static_cast<cudaStreamCaptureMode>(Number(of[1])));
  }
  if (function == "cudaStreamEndCapture") return cudaStreamEndCapture(Stream(of[1]), &recorded_[of[0]]);
  if (function == "cudaGraphInstantiate") {
    return cudaGraphInstantiate(&graphs_[of[0]], recorded_.at(of[1]), Number(of[2]));
  }
  if (function == "cudaGraphUpload") return cudaGraphUpload(graphs_.at(of[0]), Stream(of[1]));
  if (function == "cudaGraphLaunch") return cudaGraphLaunch(graphs_.at(of[0]), Stream(of[1]));
  if (function == "cudaGraphDestroy") return cudaGraphDestroy(recorded_.at(of[0]));
  if (function == "cudaGraphExecDestroy") return cudaGraphExecDestroy(graphs_.at(of[0]));
  CheckFailed(__FILE__, __LINE__, absl::StrCat("no replay of ", function));
}

cublasStatus_t Replay::MakeProduct(const Arguments& of, Product& product) const {
  cublasStatus_t status =
      library_.create_operation(&product.operation, static_cast<cublasComputeType_t>(Number(of[0])), CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = library_.set_operation(product.operation, attribute, &value, sizeof(value));
    }
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<cublasOperation_t>(Number(of[1])));
  set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<cublasOperation_t>(Number(of[2])));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(Number(of[3])));
  if (of[4] != "0") set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, Number(of[4]));
  int next = 5;
  int step = kBatch + 1;
  const auto count = static_cast<int32_t>(Number(of[kBatch]));
  if (count > 1) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, Number(of[kBatch + 4]));
  for (cublasLtMatrixLayout_t* const layout : {&product.a, &product.b, &product.d}) {
    if (status != CUBLAS_STATUS_SUCCESS) break;
    status = library_.create_layout(layout, static_cast<cudaDataType_t>(Number(of[next])), Number(of[next + 1]),
                                    Number(of[next + 2]), Number(of[next + 3]));
    next += 4;
    const int64_t offset = Number(of[step++]);
    if (count == 1 || status != CUBLAS_STATUS_SUCCESS) continue;
    status = library_.set_layout(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    if (status != CUBLAS_STATUS_SUCCESS) break;
    status = library_.set_layout(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof(offset));
  }
  return status;
}

cublasStatus_t Replay::SetPlaces(const Product& product, const std::string& bias, const std::string& mask) {
  for (const auto& [attribute, text] : {std::pair(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
                                        std::pair(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask)}) {
    if (text == "h") continue;  // none
    const void* const place = Place(text);
    const cublasStatus_t status = library_.set_operation(product.operation, attribute, &place, sizeof(place));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

std::string KeyOf(const Arguments& of) { return absl::StrJoin(of.begin(), of.begin() + kProductFields, " "); }
// Of one product of a batch.
std::string KeyOfOne(const Arguments& of) {
  return absl::StrCat(absl::StrJoin(of.begin(), of.begin() + kBatch, " "), " 1 0 0 0 0");
}

cublasStatus_t Replay::MakeBatch(const Arguments& of) {
  const Product& one = products_.at(KeyOfOne(of));
  Product& batch = products_[KeyOf(of)];
  batch.algorithm = one.algorithm;
  if (const cublasStatus_t status = MakeProduct(of, batch); status != CUBLAS_STATUS_SUCCESS) return status;
  if (const cublasStatus_t status = SetPlaces(batch, of[kProductFields], of[kProductFields + 1]);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status =
      library_.check_algorithm(handle_, batch.operation, batch.a, batch.b, batch.d, batch.d, &batch.algorithm, &result);
  // hadal would make fewer at once where the GPU's library refuses what the recording's took.
  batch.found = one.found && status == CUBLAS_STATUS_SUCCESS &&
                result.workspaceSize <= static_cast<size_t>(cuda::kMatmulWorkspaceBytes);
  return CUBLAS_STATUS_SUCCESS;
}

// After the product: bias, mask, bytes of workspace, reductions.
cublasStatus_t Replay::Search(const Arguments& of) {
  Product& product = products_[KeyOf(of)];
  if (const cublasStatus_t status = MakeProduct(of, product); status != CUBLAS_STATUS_SUCCESS) return status;
  const Arguments rest(of.begin() + kProductFields, of.end());
  if (const cublasStatus_t status = SetPlaces(product, rest[0], rest[1]); status != CUBLAS_STATUS_SUCCESS)
    return status;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasStatus_t status = library_.create_preference(&preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status == CUBLAS_STATUS_SUCCESS) status = library_.set_preference(preference, attribute, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(Number(rest[2])));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(Number(rest[3])));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(Number(of[kAlignments])));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(Number(of[kAlignments + 1])));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(Number(of[kAlignments + 2])));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(Number(of[kAlignments + 3])));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  status = library_.choose(handle_, product.operation, product.a, product.b, product.d, product.d, preference, 1,
                           &result, &count);
  library_.destroy_preference(preference);
  product.algorithm = result.algo;
  product.found = status == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  const bool plain = of[3] == absl::StrCat(static_cast<int>(CUBLASLT_EPILOGUE_DEFAULT));
  if (status == CUBLAS_STATUS_SUCCESS && count == 0 && plain) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  return refused && !plain ? CUBLAS_STATUS_SUCCESS : status;
}

// After the product: bias, mask, alpha, beta, A, B, D, workspace, its bytes, stream.
cublasStatus_t Replay::Multiply(const Arguments& of) {
  if (!products_.contains(KeyOf(of))) {
    if (const cublasStatus_t status = MakeBatch(of); status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const Product& product = products_.at(KeyOf(of));
  if (!product.found) return CUBLAS_STATUS_SUCCESS;
  const Arguments rest(of.begin() + kProductFields, of.end());
  if (const cublasStatus_t status = SetPlaces(product, rest[0], rest[1]); status != CUBLAS_STATUS_SUCCESS)
    return status;
  const auto alpha = static_cast<float>(Number(rest[2])), beta = static_cast<float>(Number(rest[3]));
  return library_.matmul(handle_, product.operation, &alpha, Place(rest[4]), product.a, Place(rest[5]), product.b,
                         &beta, Place(rest[6]), product.d, Place(rest[6]), product.d, &product.algorithm,
                         Place(rest[7]), Number(rest[8]), Stream(rest[9]));
}

std::string Replay::Call(const std::string& function, const Arguments& arguments) {
  try {
    return Made(function, arguments);
  } catch (const std::out_of_range&) {  // of a map of what was made
    return "";
  }
}

std::string Replay::Made(const std::string& function, const Arguments& arguments) {
  if (function.starts_with("cublasLt")) {
    const cublasStatus_t status = function == "cublasLtMatmul" ? Multiply(arguments) : Search(arguments);
    return status == CUBLAS_STATUS_SUCCESS ? "" : library_.status_string(status);
  }
  const cudaError_t error = CallRuntime(function, arguments);
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaSuccess || error == cudaErrorNotReady) return "";
  const auto forget = [](auto&... made) {
    (std::erase_if(made, [](const auto& entry) { return entry.second == nullptr; }), ...);
  };
  forget(memory_, streams_, events_, recorded_, graphs_);  // what this call did not make
  return cudaGetErrorString(error);
}

}  // namespace

absl::Status ReplayApiCalls(absl::string_view recording) {
  HADAL_ASSIGN_OR_RETURN(const cuda::CublasLibrary library, cuda::LoadCublasLibrary());
  Replay replay(library);
  int number = 0;
  std::set<std::string> kinds;
  std::string refused;
  for (const absl::string_view line : absl::StrSplit(recording, '\n', absl::SkipEmpty())) {
    ++number;
    Arguments words = absl::StrSplit(line, ' ');
    const Arguments arguments(words.begin() + 1, words.end());
    const std::string error = replay.Call(words[0], arguments);
    if (error.empty()) continue;
    const std::string of = words[0].starts_with("cublasLt") ? KeyOf(arguments) : "";
    if (!kinds.insert(absl::StrCat(words[0], " ", of, " ", error)).second) continue;
    absl::StrAppend(&refused, "\nline ", number, ", ", line, ": ", error);
  }
  if (kinds.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(kinds.size(), " different calls are refused:", refused));
}

}  // namespace hadal::testing
