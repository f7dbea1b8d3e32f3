#include "kernels/device/cublas_matmul.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/first_launches.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal::cuda {
namespace {

// The functions of cuBLASLt that are used here.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmulDescCreate) create_operation;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtGetStatusString) status_string;
};

absl::StatusOr<void*> OpenLibrary() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  const std::string places[] = {name, absl::StrCat("/usr/local/cuda/lib64/", name)};
  std::string errors;
  for (const std::string& place : places) {
    // Never closed: its static objects do not expect it.
    if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
    absl::StrAppend(&errors, errors.empty() ? "" : "; ", dlerror());
  }
  return absl::UnavailableError(
      absl::StrCat("cuBLASLt is not found (", errors, "); add the folder of ", name, " to LD_LIBRARY_PATH"));
}

absl::StatusOr<Library> LoadLibrary() {
  HADAL_ASSIGN_OR_RETURN(void* const handle, OpenLibrary());
  std::string missing;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) absl::StrAppend(&missing, " ", name);
  };
  Library library{};
  load(library.create, "cublasLtCreate");
  load(library.destroy, "cublasLtDestroy");
  load(library.matmul, "cublasLtMatmul");
  load(library.choose, "cublasLtMatmulAlgoGetHeuristic");
  load(library.create_operation, "cublasLtMatmulDescCreate");
  load(library.destroy_operation, "cublasLtMatmulDescDestroy");
  load(library.set_operation, "cublasLtMatmulDescSetAttribute");
  load(library.create_layout, "cublasLtMatrixLayoutCreate");
  load(library.destroy_layout, "cublasLtMatrixLayoutDestroy");
  load(library.create_preference, "cublasLtMatmulPreferenceCreate");
  load(library.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  load(library.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  load(library.status_string, "cublasLtGetStatusString");
  if (!missing.empty()) return absl::UnavailableError(absl::StrCat("this cuBLASLt lacks", missing));
  return library;
}

// What a plan is a function of.
struct Shape {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool a_transposed = false, b_transposed = false, bias = false, relu = false, accumulate = false;
  bool on_16_bytes = false;  // every matrix; strides say the rest
  Storage operands = Storage::kFloat32, result = Storage::kFloat32;

  auto Fields() const {
    return std::tie(m, n, k, a_stride, b_stride, c_stride, a_transposed, b_transposed, bias, relu, accumulate,
                    on_16_bytes, operands, result);
  }
  bool operator<(const Shape& other) const { return Fields() < other.Fields(); }
};

bool On16Bytes(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

cudaDataType_t TypeOf(Storage storage) { return storage == Storage::kFloat32 ? CUDA_R_32F : CUDA_R_16BF; }

Shape ShapeOf(const MatmulArgs& args) {
  return {.m = args.m,
          .n = args.n,
          .k = args.k,
          .a_stride = args.a.stride,
          .b_stride = args.b.stride,
          .c_stride = args.c.stride,
          .a_transposed = args.a_transposed,
          .b_transposed = args.b_transposed,
          .bias = !args.bias.empty(),
          .relu = args.relu,
          .accumulate = args.accumulate,
          .on_16_bytes = On16Bytes(args.a.data) && On16Bytes(args.b.data) && On16Bytes(args.c.data),
          .operands = args.a.storage,
          .result = args.c.storage};
}

// cuBLASLt's matrices are column-major: it computes Cᵀ = Bᵀ·Aᵀ, so that its first operand is our second.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

class CublasMatmul : public Matmul {
 public:
  CublasMatmul(const Library& library, cublasLtHandle_t handle, StreamHandle stream, void* workspace, bool tf32)
      : library_(library), handle_(handle), stream_(stream), workspace_(workspace), tf32_(tf32) {}
  ~CublasMatmul() override;

  void Multiply(const MatmulArgs& args) override;

 private:
  void Check(cublasStatus_t status, const Shape& shape) const;
  Plan MakePlan(const Shape& shape, const void* bias) const;
  void SetBias(const Plan& plan, const Shape& shape, const void* bias) const;
  void ChooseAlgorithm(const Shape& shape, Plan& plan) const;

  const Library library_;
  const cublasLtHandle_t handle_;
  const StreamHandle stream_;
  void* const workspace_;
  const bool tf32_;
  std::map<Shape, Plan> plans_;
};

CublasMatmul::~CublasMatmul() {
  for (auto& [shape, plan] : plans_) {
    library_.destroy_operation(plan.operation);
    for (cublasLtMatrixLayout_t layout : {plan.first, plan.second, plan.result}) library_.destroy_layout(layout);
  }
  library_.destroy(handle_);
}

void CublasMatmul::Check(cublasStatus_t status, const Shape& shape) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  CheckFailed(__FILE__, __LINE__,
              absl::StrCat("cuBLASLt: ", library_.status_string(status), ", product of [", shape.m, ", ", shape.k,
                           "] and [", shape.k, ", ", shape.n, "]"));
}

cublasLtEpilogue_t EpilogueOf(const Shape& shape) {
  if (shape.relu) return shape.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  return shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

void CublasMatmul::SetBias(const Plan& plan, const Shape& shape, const void* bias) const {
  if (bias == nullptr) return;
  Check(library_.set_operation(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)), shape);
}

// `bias`: the first call's; some versions offer no algorithm for a bias that is null.
Plan CublasMatmul::MakePlan(const Shape& shape, const void* bias) const {
  Plan plan;
  const auto check = [&](cublasStatus_t status) { Check(status, shape); };
  const bool tf32 = tf32_ && shape.operands == Storage::kFloat32;
  check(
      library_.create_operation(&plan.operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(library_.set_operation(plan.operation, attribute, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(shape));
  // [columns of a row as it is stored, rows as they are stored]
  const auto layout = [&](cublasLtMatrixLayout_t* to, Storage storage, int64_t columns, int64_t rows, int64_t stride) {
    check(library_.create_layout(to, TypeOf(storage), columns, rows, stride));
  };
  layout(&plan.first, shape.operands, shape.b_transposed ? shape.k : shape.n, shape.b_transposed ? shape.n : shape.k,
         shape.b_stride);
  layout(&plan.second, shape.operands, shape.a_transposed ? shape.m : shape.k, shape.a_transposed ? shape.k : shape.m,
         shape.a_stride);
  layout(&plan.result, shape.result, shape.n, shape.m, shape.c_stride);
  SetBias(plan, shape, bias);
  ChooseAlgorithm(shape, plan);
  return plan;
}

void CublasMatmul::ChooseAlgorithm(const Shape& shape, Plan& plan) const {
  cublasLtMatmulPreference_t preference;
  Check(library_.create_preference(&preference), shape);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    Check(library_.set_preference(preference, attribute, &value, sizeof(value)), shape);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMatmulWorkspaceBytes));
  const auto alignment = [&](Storage storage) -> uint32_t { return shape.on_16_bytes ? 16 : BytesOf(storage); };
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(shape.operands));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(shape.operands));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(shape.result));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(shape.result));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  Check(library_.choose(handle_, plan.operation, plan.first, plan.second, plan.result, plan.result, preference, 1,
                        &found, &count),
        shape);
  Check(count > 0 ? found.state : CUBLAS_STATUS_NOT_SUPPORTED, shape);
  library_.destroy_preference(preference);
  plan.algorithm = found.algo;
}

void CublasMatmul::Multiply(const MatmulArgs& args) {
  HADAL_CHECK(args.m >= 1 && args.n >= 1 && args.k >= 1);
  CheckTypes(args);
  const Shape shape = ShapeOf(args);
  HADAL_CHECK(!(shape.bias || args.relu) || !args.accumulate);
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    if (stream_.firsts != nullptr) stream_.firsts->NoteNew();  // its kernels may have to be loaded
    found = plans_.emplace(shape, MakePlan(shape, args.bias.data)).first;
  }
  const Plan& plan = found->second;
  SetBias(plan, shape, args.bias.data);
  stream_.CountLaunch();
  const float alpha = 1.0f, beta = args.accumulate ? 1.0f : 0.0f;
  Check(library_.matmul(handle_, plan.operation, &alpha, args.b.data, plan.first, args.a.data, plan.second, &beta,
                        args.c.data, plan.result, args.c.data, plan.result, &plan.algorithm, workspace_,
                        kMatmulWorkspaceBytes, stream_),
        shape);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Matmul>> MakeCublasMatmul(StreamHandle stream, void* workspace, bool tf32) {
  HADAL_ASSIGN_OR_RETURN(const Library library, LoadLibrary());
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = library.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("cuBLASLt does not start: ", library.status_string(status)));
  }
  return std::make_unique<CublasMatmul>(library, handle, stream, workspace, tf32);
}

}  // namespace hadal::cuda
