// The emulated CUDA runtime and cuBLASLt are as strict and as late as their headers say.
#include "tests/support/emulated_cuda.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <cmath>
#include <numeric>

#include "gmock/gmock.h"
#include "kernels/cuda/operations.h"

namespace hadal::testing {
namespace {

class EmulatedCudaTest : public ::testing::Test {
 protected:
  EmulatedCudaTest() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&device_), 40), cudaSuccess);
    EXPECT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&host_), 40, cudaHostAllocPortable), cudaSuccess);
  }
  ~EmulatedCudaTest() override {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    cudaFree(device_);
    cudaFreeHost(host_);
    cudaStreamDestroy(stream_);
    cudaGetLastError();
  }

  float Read() {
    float value = 0;
    EXPECT_EQ(cudaMemcpyAsync(&value, device_, 4, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    return value;
  }
  cudaError_t CopyIn(const void* from) { return cudaMemcpyAsync(device_, from, 40, cudaMemcpyHostToDevice, stream_); }

  cudaStream_t stream_ = nullptr;
  float *device_ = nullptr, *host_ = nullptr;
};

TEST_F(EmulatedCudaTest, ACopyFromPinnedMemoryReadsItWhenItRuns) {
  int late = 0;
  for (int round = 0; round < 100; ++round) {
    host_[0] = 1;
    ASSERT_EQ(CopyIn(host_), cudaSuccess);
    host_[0] = 2;
    late += Read() == 2;
  }
  EXPECT_GT(late, 50);
  EXPECT_LT(late, 100) << "it is not always late";
}

TEST_F(EmulatedCudaTest, ACopyFromOtherMemoryHasReadIt) {
  for (int round = 0; round < 20; ++round) {
    std::vector<float> values(10, 1.0f);
    ASSERT_EQ(CopyIn(values.data()), cudaSuccess);
    values[0] = 2;
    EXPECT_EQ(Read(), 1);
  }
}

TEST_F(EmulatedCudaTest, TheHostCannotTouchItsMemory) {
  EXPECT_DEATH(device_[0] = 1, "");
  EXPECT_TRUE(std::isnan(Read())) << "nor is it clear when it is new";
  EXPECT_EQ(cudaMemcpyAsync(host_, host_, 4, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device_, host_, 44, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidValue);
}

TEST_F(EmulatedCudaTest, AQueryThatFindsWorkIsTheNextLaunchesError) {
  while (true) {
    ASSERT_EQ(CopyIn(host_), cudaSuccess);
    if (cudaStreamQuery(stream_) == cudaErrorNotReady) break;
  }
  int64_t launches = 0;
  const auto launch = [&] { cuda::Add({stream_, &launches}, {.sum = {device_, 10}, .values = {device_, 10}}); };
  EXPECT_DEATH(launch(), "LastError");
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  launch();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(EmulatedCudaTest, EventsOrderStreams) {
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, -1), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess) << "not recorded yet";
  for (const bool awaits : {true, false}) {
    int old = 0;
    for (int round = 0; round < 50; ++round) {
      ASSERT_EQ(cudaMemsetAsync(device_, 0, 40, stream_), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      host_[0] = 1;
      ASSERT_EQ(CopyIn(host_), cudaSuccess);
      ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
      if (awaits) cudaStreamWaitEvent(other, event, 0);
      float seen = 2;
      ASSERT_EQ(cudaMemcpyAsync(&seen, device_, 4, cudaMemcpyDeviceToHost, other), cudaSuccess);
      old += seen == 0;
      while (cudaEventQuery(event) == cudaErrorNotReady) cudaGetLastError();
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    }
    EXPECT_TRUE(awaits ? old == 0 : old > 10) << old;
  }
  cudaStreamDestroy(other);
  cudaEventDestroy(event);
}

TEST_F(EmulatedCudaTest, MemoryInUseCannotGo) {
  EXPECT_DEATH(
      {
        for (int round = 0; round < 1000; ++round) CopyIn(host_);
        CopyIn(host_);
        cudaFreeHost(host_);
      },
      "InUse");
}

TEST_F(EmulatedCudaTest, ACaptureForbidsWhatTheReferenceForbids) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  void* memory = nullptr;
  std::vector<float> values(10);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(CopyIn(values.data()), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(CopyIn(host_), cudaSuccess) << "pinned memory may";
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  cudaEventDestroy(event);
}

// ---- cuBLASLt ----

template <typename Function>
Function* Load(const char* name) {
  void* const library = dlopen(("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)).c_str(), RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// The example that everybody knows: [1 3 5; 2 4 6] · [1 4; 2 5; 3 6], stored by columns.
class EmulatedCublasLtTest : public EmulatedCudaTest {
 protected:
  struct Epilogue {
    cublasLtEpilogue_t which = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;  // or its gradient
    void* mask = nullptr;
    int64_t mask_leading = 128;
  };

  cublasStatus_t Multiply(int64_t leading_of_b, const void* algorithm_of_another = nullptr) {
    return Multiply(leading_of_b, algorithm_of_another, Epilogue());
  }
  cublasStatus_t Multiply(int64_t leading_of_b, const void* algorithm_of_another, const Epilogue& epilogue,
                          float beta = 1) {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    Load<decltype(cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate")(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto attribute = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
      const auto set_operation = Load<decltype(cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute");
      EXPECT_EQ(set_operation(operation, name, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
    };
    attribute(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue.which);
    attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
    attribute(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.mask);
    attribute(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, epilogue.mask_leading);
    const auto layout = Load<decltype(cublasLtMatrixLayoutCreate)>("cublasLtMatrixLayoutCreate");
    layout(&a, CUDA_R_32F, 2, 3, 2);
    layout(&b, CUDA_R_32F, 3, 2, leading_of_b);
    layout(&d, CUDA_R_32F, 2, 2, 2);
    Load<decltype(cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate")(&preference);
    const auto set = Load<decltype(cublasLtMatmulPreferenceSetAttribute)>("cublasLtMatmulPreferenceSetAttribute");
    const uint64_t workspace_bytes = kWorkspaceBytes;
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof(workspace_bytes));
    const uint32_t alignment = 4;
    for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(preference, which, &alignment, sizeof(alignment));
    }
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    const cublasStatus_t chosen = Load<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic")(
        nullptr, operation, a, b, d, d, preference, 1, &found, &count);
    if (chosen != CUBLAS_STATUS_SUCCESS) return chosen;
    if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (algorithm_of_another != nullptr) found.algo.data[0] ^= 1;
    const float alpha = 1;
    return Load<decltype(cublasLtMatmul)>("cublasLtMatmul")(nullptr, operation, &alpha, memory_, a, memory_ + 6, b,
                                                            &beta, memory_ + 16, d, memory_ + 16, d, &found.algo,
                                                            workspace_, kWorkspaceBytes, stream_);
  }

  static constexpr size_t kWorkspaceBytes = 64 << 10;
  float* memory_ = nullptr;
  void* workspace_ = nullptr;
};

TEST_F(EmulatedCublasLtTest, MatricesLieByColumns) {
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), 80), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&workspace_, kWorkspaceBytes), cudaSuccess);
  std::vector<float> values(20);
  std::iota(values.begin(), values.begin() + 6, 1.0f);       // A: columns (1, 2), (3, 4), (5, 6)
  std::iota(values.begin() + 6, values.begin() + 12, 1.0f);  // B: columns (1, 2, 3), (4, 5, 6)
  values[16] = 100;
  ASSERT_EQ(cudaMemcpyAsync(memory_, values.data(), 80, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(Multiply(2), CUBLAS_STATUS_INVALID_VALUE) << "columns of three cannot be two apart";
  EXPECT_EQ(Multiply(3, "another"), CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(Multiply(3), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaMemcpyAsync(values.data(), memory_, 80, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_THAT(std::vector<float>(values.begin() + 16, values.end()), ::testing::ElementsAre(122, 28, 49, 64));
  cudaFree(memory_);
  cudaFree(workspace_);
}

// The product is [22 49; 28 64].
TEST_F(EmulatedCublasLtTest, EpiloguesAreThoseOfTheReference) {
  constexpr int64_t kFloats = 128;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), kFloats * 4), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&workspace_, kWorkspaceBytes), cudaSuccess);
  std::vector<float> values(kFloats);
  std::iota(values.begin(), values.begin() + 6, 1.0f);
  std::iota(values.begin() + 6, values.begin() + 12, 1.0f);
  values[32] = -30, values[33] = 1;
  ASSERT_EQ(cudaMemcpyAsync(memory_, values.data(), kFloats * 4, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  const auto result = [&](int64_t first, int64_t count) {
    EXPECT_EQ(cudaMemcpyAsync(values.data(), memory_, kFloats * 4, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    return std::vector<float>(values.begin() + first, values.begin() + first + count);
  };
  const auto multiply = [&](const Epilogue& epilogue) { return Multiply(3, nullptr, epilogue, /*beta=*/0); };

  const Epilogue forward{CUBLASLT_EPILOGUE_RELU_AUX_BIAS, memory_ + 32, memory_ + 48};
  ASSERT_EQ(multiply(forward), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(result(16, 4), ::testing::ElementsAre(0, 29, 19, 65));
  const Epilogue backward{.which = CUBLASLT_EPILOGUE_DRELU, .mask = memory_ + 48};
  ASSERT_EQ(multiply(backward), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(result(16, 4), ::testing::ElementsAre(0, 28, 49, 64));
  ASSERT_EQ(multiply({.which = CUBLASLT_EPILOGUE_BGRADB, .bias = memory_ + 64}), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(result(16, 4), ::testing::ElementsAre(22, 28, 49, 64));
  EXPECT_THAT(result(64, 2), ::testing::ElementsAre(6, 15)) << "of B's columns";

  Epilogue wrong = forward;
  wrong.mask_leading = 64;
  EXPECT_EQ(multiply(wrong), CUBLAS_STATUS_INVALID_VALUE) << "no multiple of 128 bits";
  wrong = forward;
  wrong.mask = nullptr;
  EXPECT_EQ(multiply(wrong), CUBLAS_STATUS_INVALID_VALUE);
  wrong = backward;
  wrong.mask = host_;
  EXPECT_EQ(multiply(wrong), CUBLAS_STATUS_INVALID_VALUE) << "not the device's";
  EXPECT_EQ(multiply({.which = CUBLASLT_EPILOGUE_BGRADB}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply({.which = CUBLASLT_EPILOGUE_GELU}), CUBLAS_STATUS_NOT_SUPPORTED);
  EmulatedCuda::Instance().machine.refused_epilogues = {CUBLASLT_EPILOGUE_DRELU};
  EXPECT_EQ(multiply(backward), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply(forward), CUBLAS_STATUS_SUCCESS);
  EmulatedCuda::Instance().machine = {};
  cudaFree(memory_);
  cudaFree(workspace_);
}

}  // namespace
}  // namespace hadal::testing
