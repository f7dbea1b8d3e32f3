#include "kernels/cuda_host/cublas_matmul.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/first_launches.h"
#include "kernels/cuda_host/cublas_library.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "runtime/stream.h"

namespace hadal::cuda {
namespace {

// The key of a plan.
struct Shape {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool a_transposed = false, b_transposed = false, bias = false, relu = false, writes_mask = false, reads_mask = false,
       sums = false, accumulate = false;
  int64_t count = 1, a_step = 0, b_step = 0, c_step = 0, a_sums_step = 0;
  bool on_16_bytes = false;  // of every matrix's address; the strides are given above
  Storage operands = Storage::kFloat32, result = Storage::kFloat32;

  auto Fields() const {
    return std::tie(m, n, k, a_stride, b_stride, c_stride, a_transposed, b_transposed, bias, relu, writes_mask,
                    reads_mask, sums, accumulate, count, a_step, b_step, c_step, a_sums_step, on_16_bytes, operands,
                    result);
  }
  bool operator<(const Shape& other) const { return Fields() < other.Fields(); }
  bool HasMaskOrSums() const { return writes_mask || reads_mask || sums; }
  // One of the products.
  Shape Alone() const {
    Shape alone = *this;
    alone.count = 1;
    alone.a_step = alone.b_step = alone.c_step = alone.a_sums_step = 0;
    return alone;
  }
  // `number` of them, at the least distances that keep the alignment.
  Shape Together(int64_t number) const {
    Shape together = *this;
    together.count = number;
    together.a_step = (a_transposed ? k : m) * a_stride, together.b_step = (b_transposed ? n : k) * b_stride;
    together.c_step = m * c_stride, together.a_sums_step = (m + 3) / 4 * 4;
    return together;
  }
  Shape Bare() const {
    Shape bare = *this;
    bare.bias = bare.relu = bare.writes_mask = bare.reads_mask = bare.sums = false;
    return bare;
  }
};

cudaDataType_t TypeOf(Storage storage) { return storage == Storage::kFloat32 ? CUDA_R_32F : CUDA_R_16BF; }

Shape ShapeOf(const MatmulArgs& args) {
  Shape shape = {
      .m = args.m,
      .n = args.n,
      .k = args.k,
      .a_stride = args.a.stride,
      .b_stride = args.b.stride,
      .c_stride = args.c.stride,
      .a_transposed = args.a_transposed,
      .b_transposed = args.b_transposed,
      .bias = !args.bias.empty(),
      .relu = args.relu,
      .writes_mask = args.written_mask != nullptr,
      .reads_mask = args.read_mask != nullptr,
      .sums = !args.a_sums.empty(),
      .accumulate = args.accumulate,
      .on_16_bytes = OnMatmulBoundary(args.a.data) && OnMatmulBoundary(args.b.data) && OnMatmulBoundary(args.c.data),
      .operands = args.a.storage,
      .result = args.c.storage};
  if (args.count == 1) return shape;
  shape.count = args.count, shape.a_step = args.a_step, shape.b_step = args.b_step, shape.c_step = args.c_step;
  if (shape.sums) shape.a_sums_step = args.a_sums_step;
  return shape;
}

std::string TextOf(const Shape& s) {
  const auto matrix = [](const char* name, Storage storage, bool transposed, int64_t stride) {
    return absl::StrCat(name, storage == Storage::kFloat32 ? " fp32" : " bf16", transposed ? " transposed" : "",
                        " stride ", stride);
  };
  return absl::StrCat("product of [", s.m, ", ", s.k, "] and [", s.k, ", ", s.n,
                      "]: ", matrix("a", s.operands, s.a_transposed, s.a_stride), ", ",
                      matrix("b", s.operands, s.b_transposed, s.b_stride), ", ",
                      matrix("c", s.result, false, s.c_stride), s.on_16_bytes ? "" : ", not 16-byte aligned",
                      s.bias ? ", bias" : "", s.relu ? ", ReLU" : "", s.writes_mask ? ", writes a mask" : "",
                      s.reads_mask ? ", reads a mask" : "", s.sums ? ", sums" : "", s.accumulate ? ", accumulates" : "",
                      s.count > 1 ? absl::StrCat(", ", s.count, " of them") : "");
}

// cuBLASLt's matrices are column-major: it computes Cᵀ = Bᵀ·Aᵀ, so its first operand is our second.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  bool offered = false, launched = false;
  cublasLtMatmulAlgo_t algorithm = {};
};

class CublasMatmul : public Matmul {
 public:
  CublasMatmul(const CublasLibrary& library, cublasLtHandle_t handle, StreamHandle stream, void* workspace, int major,
               bool tf32, int weight_gradient_batch)
      : library_(library),
        handle_(handle),
        stream_(stream),
        workspace_(workspace),
        major_(major),
        tf32_(tf32),
        weight_gradient_batch_(weight_gradient_batch) {}
  ~CublasMatmul() override;

  bool Offers(const MatmulArgs& args) override;
  void Multiply(const MatmulArgs& args) override;

 private:
  void Check(cublasStatus_t status, const Shape& shape) const;
  // Must be called before the library does something for the first time.
  void NoteNew() const {
    if (stream_.firsts != nullptr) stream_.firsts->NoteNew();
  }
  Plan& PlanOf(const Shape& shape);
  Plan MakePlan(const Shape& shape);
  // Whether the plan's algorithm can compute its products.
  bool Works(const Plan& plan) const;
  // Whether the epilogue makes cuBLASLt compute the product in a slower way than without it.
  bool CostsItsSpeed(const Shape& shape, const Plan& plan);
  int32_t ConfigOf(cublasLtMatmulAlgoConfigAttributes_t attribute, const Shape& shape, const Plan& plan) const;
  // Sets the pointers of a bias or its gradient, and of a mask; ignores a pointer that the shape does not have.
  void SetPlaces(const Plan& plan, const Shape& shape, const void* bias, const void* mask) const;
  // Returns NOT_SUPPORTED if there is no algorithm.
  cublasStatus_t ChooseAlgorithm(const Shape& shape, Plan& plan) const;

  const CublasLibrary library_;
  const cublasLtHandle_t handle_;
  const StreamHandle stream_;
  void* const workspace_;
  const int major_;
  const bool tf32_;
  const int weight_gradient_batch_;
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
  CheckFailed(__FILE__, __LINE__, absl::StrCat("cuBLASLt: ", library_.status_string(status), ", ", TextOf(shape)));
}

cublasLtEpilogue_t EpilogueOf(const Shape& shape) {
  if (shape.reads_mask) return CUBLASLT_EPILOGUE_DRELU;
  if (shape.sums) return CUBLASLT_EPILOGUE_BGRADB;  // the sums of the second operand, our first
  if (!shape.relu) return shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (shape.writes_mask) return shape.bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX;
  return shape.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
}

// Products that cuBLASLt may compute wrongly although it offers them: NVIDIA's own nvmath refuses both gradients for
// products of a single term, and a sum for a single column has been reported to fault.
bool IsKnownNotToWork(const Shape& shape) {
  return ((shape.reads_mask || shape.sums) && shape.k == 1) || (shape.sums && shape.m == 1);
}

void CublasMatmul::SetPlaces(const Plan& plan, const Shape& shape, const void* bias, const void* mask) const {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* place) {
    Check(library_.set_operation(plan.operation, attribute, &place, sizeof(place)), shape);
  };
  if (shape.bias || shape.sums) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (shape.writes_mask || shape.reads_mask) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask);
}

int32_t CublasMatmul::ConfigOf(cublasLtMatmulAlgoConfigAttributes_t attribute, const Shape& shape,
                               const Plan& plan) const {
  int32_t value = 0;
  Check(library_.get_algorithm(&plan.algorithm, attribute, &value, sizeof(value), nullptr), shape);
  return value;
}

bool CublasMatmul::CostsItsSpeed(const Shape& shape, const Plan& plan) {
  if (!shape.HasMaskOrSums()) return false;
  const Shape bare_shape = shape.Bare();
  const Plan& bare = PlanOf(bare_shape);
  if (!bare.offered) return false;
  const auto config = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    return std::pair(ConfigOf(attribute, shape, plan), ConfigOf(attribute, bare_shape, bare));
  };
  constexpr int kFirstMajorWithItsOwnInstructions = 9;
  const auto [kind, bare_kind] = config(CUBLASLT_ALGO_CONFIG_ID);
  if (major_ >= kFirstMajorWithItsOwnInstructions && kind != bare_kind) return true;
  const auto [parts, bare_parts] = config(CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  return bare_parts > 1 && parts <= 1;
}

Plan CublasMatmul::MakePlan(const Shape& shape) {
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
  if (shape.writes_mask || shape.reads_mask) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8 * ReluMaskBytes(1, shape.n));  // in elements, which are bits
  }
  // [columns of a stored row, stored rows]
  const auto layout = [&](cublasLtMatrixLayout_t* to, Storage storage, int64_t columns, int64_t rows, int64_t stride) {
    check(library_.create_layout(to, TypeOf(storage), columns, rows, stride));
  };
  layout(&plan.first, shape.operands, shape.b_transposed ? shape.k : shape.n, shape.b_transposed ? shape.n : shape.k,
         shape.b_stride);
  layout(&plan.second, shape.operands, shape.a_transposed ? shape.m : shape.k, shape.a_transposed ? shape.k : shape.m,
         shape.a_stride);
  layout(&plan.result, shape.result, shape.n, shape.m, shape.c_stride);
  const auto repeat = [&](const Shape& number) {
    const auto count = static_cast<int32_t>(number.count);
    for (const auto& [of, step] : {std::pair(plan.first, number.b_step), std::pair(plan.second, number.a_step),
                                   std::pair(plan.result, number.c_step)}) {
      check(library_.set_layout(of, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
      check(library_.set_layout(of, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)));
    }
    if (shape.sums) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, number.a_sums_step);
  };
  // Not null, because some versions then offer no algorithm.
  const void* const somewhere = static_cast<const std::byte*>(workspace_) + 16;
  SetPlaces(plan, shape, somewhere, somewhere);
  if (shape.count > 1) {
    repeat(shape);
    const Plan& alone = PlanOf(shape.Alone());
    plan.algorithm = alone.algorithm;
    plan.offered = alone.offered && Works(plan);
    return plan;
  }
  const cublasStatus_t status = IsKnownNotToWork(shape) ? CUBLAS_STATUS_NOT_SUPPORTED : ChooseAlgorithm(shape, plan);
  if (status == CUBLAS_STATUS_SUCCESS && shape.a_transposed && shape.accumulate && weight_gradient_batch_ > 1) {
    const cublasLtMatmulAlgo_t of_one = plan.algorithm;
    repeat(shape.Together(weight_gradient_batch_));
    const bool chosen = ChooseAlgorithm(shape, plan) == CUBLAS_STATUS_SUCCESS;
    repeat(shape);
    if (!chosen || !Works(plan)) plan.algorithm = of_one;
  }
  plan.offered = status == CUBLAS_STATUS_SUCCESS && !CostsItsSpeed(shape, plan);
  // cuBLASLt may return either error if it lacks the epilogue.
  const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  if (!(refused && EpilogueOf(shape) != CUBLASLT_EPILOGUE_DEFAULT)) Check(status, shape);
  return plan;
}

bool CublasMatmul::Works(const Plan& plan) const {
  cublasLtMatmulHeuristicResult_t found = {};
  const cublasStatus_t status = library_.check_algorithm(handle_, plan.operation, plan.first, plan.second, plan.result,
                                                         plan.result, &plan.algorithm, &found);
  return status == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= static_cast<size_t>(kMatmulWorkspaceBytes);
}

cublasStatus_t CublasMatmul::ChooseAlgorithm(const Shape& shape, Plan& plan) const {
  cublasLtMatmulPreference_t preference;
  Check(library_.create_preference(&preference), shape);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    Check(library_.set_preference(preference, attribute, &value, sizeof(value)), shape);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMatmulWorkspaceBytes));
  // Otherwise the parts of a sum over k that several blocks compute would be added in the result's type.
  if (shape.result != Storage::kFloat32) {
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  }
  const auto alignment = [&](Storage storage) -> uint32_t { return shape.on_16_bytes ? 16 : BytesOf(storage); };
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(shape.operands));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(shape.operands));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(shape.result));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(shape.result));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  const cublasStatus_t status = library_.choose(handle_, plan.operation, plan.first, plan.second, plan.result,
                                                plan.result, preference, 1, &found, &count);
  library_.destroy_preference(preference);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  plan.algorithm = found.algo;
  return count > 0 ? found.state : CUBLAS_STATUS_NOT_SUPPORTED;
}

Plan& CublasMatmul::PlanOf(const Shape& shape) {
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    NoteNew();
    Plan plan = MakePlan(shape);  // which may insert others
    found = plans_.emplace(shape, plan).first;
  }
  return found->second;
}

bool CublasMatmul::Offers(const MatmulArgs& args) {
  CheckArgs(args);
  return (args.count == 1 && !args.HasEpilogue()) || PlanOf(ShapeOf(args)).offered;
}

void CublasMatmul::Multiply(const MatmulArgs& args) {
  CheckArgs(args);
  const Shape shape = ShapeOf(args);
  Plan& plan = PlanOf(shape);
  HADAL_CHECK(plan.offered);
  if (!std::exchange(plan.launched, true)) NoteNew();  // its kernels may have to be loaded
  SetPlaces(plan, shape, shape.sums ? args.a_sums.data : args.bias.data,
            shape.writes_mask ? args.written_mask : args.read_mask);
  stream_.CountLaunch();
  const bool on_main = args.queue == DeviceQueues::kMain;
  const float alpha = 1.0f, beta = args.accumulate ? 1.0f : 0.0f;
  Check(library_.matmul(handle_, plan.operation, &alpha, args.b.data, plan.first, args.a.data, plan.second, &beta,
                        args.c.data, plan.result, args.c.data, plan.result, &plan.algorithm,
                        on_main ? workspace_ : args.workspace, kMatmulWorkspaceBytes,
                        on_main ? stream_.stream : static_cast<cudaStream_t>(args.queue)),
        shape);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Matmul>> MakeCublasMatmul(StreamHandle stream, void* workspace, int major, bool tf32,
                                                         int weight_gradient_batch) {
  HADAL_ASSIGN_OR_RETURN(const CublasLibrary library, LoadCublasLibrary());
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = library.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return UnavailableError("cannot start cuBLASLt: ", library.status_string(status));
  }
  return std::make_unique<CublasMatmul>(library, handle, stream, workspace, major, tf32, weight_gradient_batch);
}

}  // namespace hadal::cuda
