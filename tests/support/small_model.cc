#include "tests/support/small_model.h"

namespace hadal::testing {

ModelOptions SmallModel(ResidualMethod method, const SmallShape& shape) {
  ModelOptions model{.encoder_layers = shape.encoder_layers,
                     .decoder_layers = shape.decoder_layers,
                     .d_model = shape.d_model,
                     .d_ff = shape.d_ff > 0 ? shape.d_ff : 2 * shape.d_model,
                     .heads = shape.heads,
                     .source_vocabulary = shape.encoder_layers > 0 && shape.decoder_layers > 0 ? shape.vocabulary : 0,
                     .target_vocabulary = shape.vocabulary,
                     .max_positions = shape.max_positions,
                     .dropout = 0.1,
                     .attention_dropout = 0.1,
                     .activation_dropout = 0.1,
                     .label_smoothing = 0.1};
  ApplyResidualMethod(method, model);
  model.branch_growth_updates = 10;
  if (method == ResidualMethod::kCompleteP && model.has_decoder()) model.base_width = shape.d_model / 2;
  return model;
}

ModelOptions WithAdaptiveSoftmax(ModelOptions model, EmbeddingSharing sharing, int32_t first, int32_t second) {
  model.sharing = sharing;
  model.adaptive_cutoffs = {.ids = {first, second}, .count = 2};
  model.label_smoothing = 0;
  model.adaptive_dropout = 0.2;
  return model;
}

}  // namespace hadal::testing
