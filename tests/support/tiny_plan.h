// Makes the smallest models, for tests that compute little.
#pragma once

#include "layers/model_plan.h"

namespace hadal {

struct TinyShape {
  int32_t encoder_layers = 1;  // 0: a language model
  int32_t decoder_layers = 1;
  int32_t d_model = 8;
  int32_t d_ff = 8;
  int32_t heads = 1;
  int32_t vocabulary = 20;  // of each side
  int32_t max_positions = 8;
};

// ModelOptions' defaults for everything else.
inline ModelOptions TinyModel(const TinyShape& shape = {}) {
  return {.encoder_layers = shape.encoder_layers,
          .decoder_layers = shape.decoder_layers,
          .d_model = shape.d_model,
          .d_ff = shape.d_ff,
          .heads = shape.heads,
          .source_vocabulary = shape.encoder_layers > 0 ? shape.vocabulary : 0,
          .target_vocabulary = shape.vocabulary,
          .max_positions = shape.max_positions};
}

inline ModelPlan TinyPlan(const TinyShape& shape = {}) { return ModelPlan::Make(TinyModel(shape)); }

}  // namespace hadal
