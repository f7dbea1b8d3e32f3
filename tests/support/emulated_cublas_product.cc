#include "tests/support/emulated_cublas_product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

namespace hadal::testing {
namespace {

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

int64_t BytesOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

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

void Store(void* data, cudaDataType type, int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<uint16_t*>(data)[i] = Narrowed(value);
  }
}

// D's element (i, j) behind the epilogue.
float Finished(const CublasLtProblem& p, float value, int64_t i, int64_t j) {
  const CublasLtDescription& x = p.description;
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

}  // namespace

bool CublasLtProblem::has_vector() const {
  return HasBias(description.epilogue) || description.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
int64_t CublasLtProblem::vector_bytes() const {
  return ((d.count - 1) * description.bias_step + (HasBias(description.epilogue) ? m() : n())) * BytesOf(d.type);
}
bool CublasLtProblem::has_mask() const { return HasMask(description.epilogue); }

int64_t SpanBytes(const CublasLtLayout& l) {
  return ((l.count - 1) * l.step + (l.columns - 1) * l.leading + l.rows) * BytesOf(l.type);
}

int64_t StepBytes(const CublasLtLayout& l) { return l.step * BytesOf(l.type); }

cublasStatus_t CheckProblem(const CublasLtProblem& p) {
  for (const CublasLtLayout& l : {p.a, p.b, p.d}) {
    if (l.rows < 1 || l.columns < 1 || l.leading < l.rows) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool turned_a = p.description.transpose_a == CUBLAS_OP_T, turned_b = p.description.transpose_b == CUBLAS_OP_T;
  const int64_t m = turned_a ? p.a.columns : p.a.rows, k_b = turned_b ? p.b.columns : p.b.rows;
  const int64_t n = turned_b ? p.b.rows : p.b.columns;
  if (m != p.m() || n != p.n() || k_b != p.k() || !p.same_c_and_d) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasLtEpilogue_t epilogue = p.description.epilogue;
  if (!IsKnown(epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.has_vector() && p.description.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (p.has_mask()) {
    const int64_t leading = p.description.mask_leading;
    if (p.description.mask == nullptr || leading % 128 != 0 || leading < p.m()) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (IsGradient(epilogue) && p.k() == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.d.count < 1 || p.a.count != p.d.count || p.b.count != p.d.count) return CUBLAS_STATUS_INVALID_VALUE;
  if (p.d.count > 1) {
    if (p.a.step < 0 || p.b.step < 0 || p.d.step < (p.d.columns - 1) * p.d.leading + p.d.rows) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (p.has_mask()) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.has_vector() && (p.description.bias_step < p.n() || p.description.bias_step * BytesOf(p.d.type) % 16 != 0)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const bool narrow = p.a.type == CUDA_R_16BF;
  if (p.a.type != p.b.type || (p.d.type != CUDA_R_32F && p.d.type != p.a.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (narrow && p.description.compute != CUBLAS_COMPUTE_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

static void MultiplyOne(const CublasLtProblem& p, const CublasLtOperands& x) {
  const bool tf32 = p.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  // op(M) as [rows, depth], where `turned` says that M is stored [depth, rows].
  const auto values = [&](const void* data, const CublasLtLayout& l, int64_t rows, bool turned) {
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
  if (HasMask(p.description.epilogue) && HasRelu(p.description.epilogue)) {
    std::memset(p.description.mask, 0xFF, p.mask_bytes());
  }
  const auto part = [&](int64_t i, int64_t j, int64_t begin, int64_t end) {
    float sum = 0.0f;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t depth = x.descending ? begin + end - 1 - t : t;
      sum += a[i * p.k() + depth] * b[j * p.k() + depth];
    }
    return x.adds_parts_in_d_type && p.d.type == CUDA_R_16BF ? Widened(Narrowed(sum)) : sum;
  };
  const int64_t half = x.adds_parts_in_d_type ? p.k() / 2 : 0;
  for (int64_t j = 0; j < p.n(); ++j) {
    for (int64_t i = 0; i < p.m(); ++i) {
      const float sum = part(i, j, 0, half) + part(i, j, half, p.k());
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

void Multiply(const CublasLtProblem& p, const CublasLtOperands& x) {
  CublasLtProblem one = p;
  CublasLtOperands of_one = x;
  const auto advance = [](auto& place, int64_t elements, cudaDataType type) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<std::remove_reference_t<decltype(place)>>>,
                                    const std::byte, std::byte>;
    place = static_cast<Byte*>(place) + elements * BytesOf(type);
  };
  for (int32_t i = 0; i < p.d.count; ++i) {
    MultiplyOne(one, of_one);
    advance(of_one.a, p.a.step, p.a.type);
    advance(of_one.b, p.b.step, p.b.type);
    advance(of_one.d, p.d.step, p.d.type);
    if (p.has_vector()) advance(one.description.bias, p.description.bias_step, p.d.type);
  }
}

}  // namespace hadal::testing
