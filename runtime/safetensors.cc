#include "runtime/safetensors.h"

#include <functional>
#include <numeric>

namespace hadal {

int64_t SafetensorsTypeBytes(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::kF32:
      return 4;
    case SafetensorsType::kBF16:
      return 2;
    case SafetensorsType::kI64:
      return 8;
  }
  return 0;
}

const char* SafetensorsTypeName(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::kF32:
      return "F32";
    case SafetensorsType::kBF16:
      return "BF16";
    case SafetensorsType::kI64:
      return "I64";
  }
  return "";
}

int64_t SafetensorsTensor::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), SafetensorsTypeBytes(type), std::multiplies<>());
}

}  // namespace hadal
