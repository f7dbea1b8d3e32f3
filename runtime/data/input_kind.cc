#include "runtime/data/input_kind.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {

std::string DescribeFeatures(const InputKind& kind) {
  if (kind.frame_width == 0) return "tokens";
  return absl::StrCat(kind.frame_width, " filters",
                      kind.sample_rate > 0 ? absl::StrCat(" at ", kind.sample_rate, " Hz") : "",
                      kind.cmvn.empty() ? "" : absl::StrCat(", cmvn ", kind.cmvn));
}

absl::Status CheckFeatureKind(const InputKind& model, const InputKind& given, const std::string& name) {
  const bool same = model.frame_width == given.frame_width &&
                    (model.sample_rate == 0 || given.sample_rate == 0 || model.sample_rate == given.sample_rate) &&
                    (model.cmvn.empty() || given.cmvn.empty() || model.cmvn == given.cmvn);
  if (same) return absl::OkStatus();
  return InvalidArgumentError(name, " has ", DescribeFeatures(given), ", and the model reads ", DescribeFeatures(model),
                              model.frame_width > 0
                                  ? "; make the features as those of its training (speech_features.py --filters, "
                                    "--cmvn, --rate)"
                                  : "");
}

absl::Status CheckTags(const InputKind& model, const std::string& given, const std::string& name) {
  if (model.tags.empty() || given.empty() || model.tags == given) return absl::OkStatus();
  const auto describe = [](const std::string& tags) {
    return tags == "none" ? std::string("no language tags") : absl::StrCat("language tags of the preset ", tags);
  };
  return InvalidArgumentError(name, " has ", describe(given), ", and the model was trained with ",
                              describe(model.tags));
}

}  // namespace hadal
