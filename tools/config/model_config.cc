#include "tools/config/model_config.h"

#include "layers/method_presets.h"
#include "layers/model_fields.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tools/config/config_schema.h"
#include "tools/config/config_value.h"

namespace hadal {
namespace {

const FieldDescriptor* FieldNamed(const char* name, const ConfigMessage& message) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
  HADAL_CHECK(field != nullptr);  // the schema has every field of StackMethod and Block
  return field;
}

double Get(const ConfigMessage& from, const FieldDescriptor* field, double) {
  return from.GetReflection()->GetDouble(from, field);
}
int32_t Get(const ConfigMessage& from, const FieldDescriptor* field, int32_t) {
  return from.GetReflection()->GetInt32(from, field);
}
bool Get(const ConfigMessage& from, const FieldDescriptor* field, bool) {
  return from.GetReflection()->GetBool(from, field);
}
template <typename Enum, size_t kSize>
Enum Get(const ConfigMessage& from, const FieldDescriptor* field, Enum, const Word<Enum> (&words)[kSize]) {
  return FromWord(words, from.GetReflection()->GetString(from, field));
}

void Set(double value, const FieldDescriptor* field, ConfigMessage& to) {
  to.GetReflection()->SetDouble(&to, field, value);
}
void Set(int32_t value, const FieldDescriptor* field, ConfigMessage& to) {
  to.GetReflection()->SetInt32(&to, field, value);
}
void Set(bool value, const FieldDescriptor* field, ConfigMessage& to) {
  to.GetReflection()->SetBool(&to, field, value);
}
template <typename Enum, size_t kSize>
void Set(Enum value, const FieldDescriptor* field, ConfigMessage& to, const Word<Enum> (&words)[kSize]) {
  to.GetReflection()->SetString(&to, field, ToWord(words, value));
}

void OverrideStack(const config::StackResidual& from, StackMethod& to) {
  ForEachStackField([&](const char* name, auto member, FieldAge, const auto&... words) {
    const FieldDescriptor* const field = FieldNamed(name, from);
    if (from.GetReflection()->HasField(from, field)) to.*member = Get(from, field, to.*member, words...);
  });
}

}  // namespace

absl::Status ReadModel(const config::Model& from, ModelOptions& to) {
  to.encoder_layers = from.encoder_layers();
  to.decoder_layers = from.decoder_layers();
  to.d_model = from.d_model();
  to.d_ff = from.d_ff();
  to.heads = from.heads();
  to.max_positions = from.max_positions();
  to.sharing = FromWord(kSharingWords, from.sharing());
  to.frame_width = from.frame_width();
  to.front_end_channels = from.front_end_channels();
  to.base_width = from.base_width();
  to.dropout = from.dropout();
  to.attention_dropout = from.attention_dropout();
  to.activation_dropout = from.activation_dropout();
  to.label_smoothing = from.label_smoothing();
  to.z_loss = from.z_loss();
  if (from.adaptive_cutoffs_size() > AdaptiveCutoffs::kMost) {
    return InvalidArgumentError("model.adaptive_cutoffs has ", from.adaptive_cutoffs_size(), " entries; at most ",
                                AdaptiveCutoffs::kMost, " are allowed");
  }
  for (const int32_t id : from.adaptive_cutoffs()) to.adaptive_cutoffs.ids[to.adaptive_cutoffs.count++] = id;
  to.adaptive_factor = from.adaptive_factor();
  to.adaptive_dropout = from.adaptive_dropout();
  const config::Block& block = from.block();
  if (block.head_width() == 0 && to.d_model % to.heads != 0) {
    return InvalidArgumentError("model.heads = ", to.heads,
                                " is not allowed; it must divide model.d_model = ", to.d_model);
  }
  ForEachBlockField([&](const char* name, auto member, const auto&... words) {
    to.block.*member = Get(block, FieldNamed(name, block), to.block.*member, words...);
  });
  const config::Residual& residual = from.residual();
  HADAL_ASSIGN_OR_RETURN(const ResidualMethod method, ParseResidualMethod(residual.method()));
  ApplyResidualMethod(method, to);
  if (residual.torchscale_compat()) {
    if (method != ResidualMethod::kDeepNorm) {
      return InvalidArgumentError(
          "model.residual.torchscale_compat = true is not allowed with model.residual.method = \"", residual.method(),
          "\"; it applies only to \"deepnorm\"");
    }
    ApplyTorchscaleBeta(to);
  }
  OverrideStack(residual.encoder(), to.encoder);
  OverrideStack(residual.decoder(), to.decoder);
  if (residual.has_distribution()) to.distribution = FromWord(kDistributionWords, residual.distribution());
  if (residual.has_branch_growth()) to.branch_growth = FromWord(kBranchGrowthWords, residual.branch_growth());
  to.branch_growth_steepness =
      residual.has_growth_steepness() ? residual.growth_steepness() : DefaultSteepness(to.branch_growth);
  return absl::OkStatus();
}

config::StackResidual ToStackResidual(const StackMethod& method) {
  config::StackResidual residual;
  ForEachStackField([&](const char* name, auto member, FieldAge, const auto&... words) {
    Set(method.*member, FieldNamed(name, residual), residual, words...);
  });
  return residual;
}

config::Block ToBlock(const Block& block) {
  config::Block message;
  ForEachBlockField([&](const char* name, auto member, const auto&... words) {
    Set(block.*member, FieldNamed(name, message), message, words...);
  });
  return message;
}

std::string DistributionName(WeightDistribution distribution) { return ToWord(kDistributionWords, distribution); }
std::string BranchGrowthName(BranchGrowth growth) { return ToWord(kBranchGrowthWords, growth); }

}  // namespace hadal
