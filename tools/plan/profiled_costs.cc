#include "tools/plan/profiled_costs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/orthogonalize.h"
#include "layers/model_fields.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"

namespace hadal {
namespace {

constexpr double kGiga = 1e9, kMilli = 1e-3, kMicro = 1e-6, kNano = 1e-9;

class ProfiledCosts : public StepCosts {
 public:
  ProfiledCosts(config::Profile profile, const std::optional<Machine>& machine)
      : profile_(std::move(profile)), machine_(machine) {}

  absl::StatusOr<std::vector<SublayerSeconds>> Sublayers(const ModelPlan& plan, const ActivationCapacity& capacity,
                                                         bool recompute) const override {
    HADAL_ASSIGN_OR_RETURN(const config::CapacityCosts* costs, Find(capacity));
    std::map<std::string, SublayerSeconds> of_kind;
    for (const config::SublayerCost& cost : costs->sublayers()) {
      of_kind[cost.kind()] = recompute
                                 ? SublayerSeconds{kMilli * cost.recomputed_forward_ms(), kMilli * cost.recompute_ms(),
                                                   kMilli * cost.recomputed_backward_ms()}
                                 : SublayerSeconds{kMilli * cost.forward_ms(), 0, kMilli * cost.backward_ms()};
    }
    std::vector<SublayerSeconds> seconds;
    for (const SublayerRecord& record : plan.sublayers) {
      const auto found = of_kind.find(ProfiledKind(record));
      if (found == of_kind.end()) {
        return NotFoundError("the profile has no cost of a ", ProfiledKind(record), " sublayer");
      }
      seconds.push_back(found->second);
    }
    return seconds;
  }

  double UpdateSeconds(double held, double updated) const override {
    return kNano * (profile_.held_nanoseconds() * held + profile_.updated_nanoseconds() * updated);
  }
  double OrthogonalizeSeconds(const ParameterRecord& matrix, int32_t steps) const override {
    return OrthogonalizeOperations(matrix.rows, matrix.columns, steps, /*by_halves=*/true) / peak_flops();
  }
  double SumSeconds() const override { return kNano * profile_.sum_nanoseconds(); }
  LinkRate Link(bool leaves_node) const override {
    if (leaves_node && machine_) return machine_->inter_node;
    return {.bytes_per_second = kGiga * profile_.message_gb_per_second(),
            .latency_seconds = kMicro * profile_.message_microseconds()};
  }
  // The host is the device: both are in the measured times.
  double GapSeconds() const override { return 0; }
  double CallSeconds() const override { return 0; }
  double GroupedCallSeconds() const override { return 0; }
  bool overlap() const override { return machine_ && machine_->overlap; }
  int32_t backward_parts() const override {
    return std::numeric_limits<int32_t>::max();
  }  // on a CPU: one part per sublayer
  double peak_flops() const override { return kGiga * profile_.gflops(); }
  std::string Describe() const override {
    return absl::StrFormat("profile of %s, %d rank(s) x %d thread(s) at once", profile_.processor(), profile_.ranks(),
                           profile_.threads());
  }

 private:
  absl::StatusOr<const config::CapacityCosts*> Find(const ActivationCapacity& capacity) const {
    std::string there;
    for (const config::CapacityCosts& costs : profile_.capacities()) {
      if (costs.source_tokens() == capacity.source_rows && costs.target_tokens() == capacity.target_rows) return &costs;
      absl::StrAppend(&there, there.empty() ? "" : ", ", costs.source_tokens(), "/", costs.target_tokens());
    }
    return NotFoundError("the profile has no micro-batches of ", capacity.source_rows, " source and ",
                         capacity.target_rows, " target tokens, only ", there, "; measure again with these");
  }

  const config::Profile profile_;
  const std::optional<Machine> machine_;
};

}  // namespace

std::string ProfiledKind(const SublayerRecord& record) {
  const bool encoder = record.stack == Stack::kEncoder;
  switch (record.kind) {
    case SublayerKind::kSourceEmbedding:
      return "source_embedding";
    case SublayerKind::kTargetEmbedding:
      return "target_embedding";
    case SublayerKind::kSelfAttention:
      return encoder ? "encoder_self_attention" : "decoder_self_attention";
    case SublayerKind::kCrossAttention:
      return "cross_attention";
    case SublayerKind::kFeedForward:
      return encoder ? "encoder_feed_forward" : "decoder_feed_forward";
    case SublayerKind::kOutputHead:
      return "output_head";
  }
  return "";
}

std::string ResidualMixing(const ModelOptions& model) {
  const bool encoder = model.encoder.residual_streams > model.decoder.residual_streams;
  return ToWord(kHyperMixingWords, (encoder ? model.encoder : model.decoder).residual_mixing);
}

absl::StatusOr<config::Profile> LoadProfile(const std::string& file) {
  config::Profile profile;
  HADAL_RETURN_IF_ERROR(LoadMessage(file, profile));
  if (profile.capacities().empty() || !profile.has_gflops()) {
    return InvalidArgumentError(file, ": has no costs; make a profile with `hadal bench profile --out FILE`");
  }
  return profile;
}

absl::StatusOr<std::unique_ptr<StepCosts>> MakeProfiledCosts(const config::Profile& profile, const ModelOptions& model,
                                                             const std::optional<Machine>& machine) {
  const config::ProfiledModel& measured = profile.model();
  const auto text = [](int64_t number) { return absl::StrCat(number); };
  const auto quoted = [](const std::string& word) { return absl::StrCat("\"", word, "\""); };
  const struct {
    const char* name;
    std::string measured, asked;
  } fields[] = {{"d_model ", text(measured.d_model()), text(model.d_model)},
                {"d_ff ", text(measured.d_ff()), text(model.d_ff)},
                {"heads ", text(measured.heads()), text(model.heads)},
                {"source vocabulary ", text(measured.source_vocabulary()), text(model.source_vocabulary)},
                {"target vocabulary ", text(measured.target_vocabulary()), text(model.target_vocabulary)},
                {"residual streams ", text(measured.residual_streams()),
                 text(std::max(model.encoder.residual_streams, model.decoder.residual_streams))},
                {"frame_width ", text(measured.frame_width()), text(model.frame_width)},
                {"front_end_channels ", text(measured.front_end_channels()),
                 text(model.reads_speech() ? model.front_end_channels : 0)},
                {"", measured.block(), BlockText(model.block)},
                {"residual_mixing ", quoted(measured.residual_mixing()), quoted(ResidualMixing(model))},
                {"model.adaptive_cutoffs ", absl::StrCat("[", absl::StrJoin(measured.adaptive_cutoffs(), ", "), "]"),
                 absl::StrCat("[", absl::StrJoin(model.adaptive_cutoffs.span(), ", "), "]")}};
  for (const auto& field : fields) {
    if (field.measured == field.asked) continue;
    return InvalidArgumentError("the profile was measured with ", field.name, field.measured, ", this model has ",
                                field.asked, "; measure it with this model");
  }
  return std::make_unique<ProfiledCosts>(profile, machine);
}

}  // namespace hadal
