#include "layers/initialization.h"

#include "runtime/data/packed_batch.h"
#include "runtime/random.h"

namespace hadal {
namespace {

// `zero_row`: of a table of tokens, or -1.
float InitialValue(const ParameterRecord& record, int64_t zero_row, uint64_t seed, int32_t parameter, int64_t element) {
  const uint32_t stream = static_cast<uint32_t>(parameter);
  switch (record.init) {
    case InitKind::kZero:
      return 0;
    case InitKind::kOne:
      return 1;
    case InitKind::kConstant:
      return record.init_scale;
    case InitKind::kUniform:
      return static_cast<float>(record.init_scale *
                                (2 * UniformAt(seed, RandomSite::kInitialization, stream, element) - 1));
    case InitKind::kNormal:
      if (record.role == ParameterRole::kEmbedding && element / record.columns == zero_row) return 0;
      return static_cast<float>(record.init_scale * NormalAt(seed, RandomSite::kInitialization, stream, element));
  }
  return 0;
}

}  // namespace

void InitializeSlice(const Stream& stream, const ModelPlan& plan, uint64_t seed, int32_t parameter, int64_t slice,
                     Vector values) {
  const ParameterRecord& record = plan.parameters[parameter];
  const int64_t first = slice * kSliceElements;
  HADAL_CHECK_LE(first + values.size, record.elements());
  const int64_t zero_row = plan.options.reserved_ids ? kPadToken : -1;
  stream.ForRanges(values.size, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = InitialValue(record, zero_row, seed, parameter, first + i);
  });
}

}  // namespace hadal
