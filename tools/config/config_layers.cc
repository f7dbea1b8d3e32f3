#include "tools/config/config_layers.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_value.h"

namespace hadal {
namespace {

// What later files do to a file's fields.
struct Fate {
  int fields = 0;
  bool all_set_again = true;
  std::string changed;  // "model.d_model = 128 becomes 512": the first one
};

// A member of a oneof is also replaced by another member.
bool IsSet(const ConfigMessage& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) return reflection.FieldSize(message, &field) > 0;
  const auto* alternatives = field.real_containing_oneof();
  return alternatives != nullptr ? reflection.HasOneof(message, alternatives) : reflection.HasField(message, &field);
}

void Follow(const ConfigMessage& layer, const ConfigMessage& later, const std::string& parent, Fate& fate) {
  std::vector<const FieldDescriptor*> fields;
  layer.GetReflection()->ListFields(layer, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = FieldPath(parent, field->name());
    if (IsMessage(*field)) {
      Follow(layer.GetReflection()->GetMessage(layer, field), later.GetReflection()->GetMessage(later, field), path,
             fate);
      continue;
    }
    ++fate.fields;
    if (!IsSet(later, *field)) {
      fate.all_set_again = false;
      continue;
    }
    const std::string before = ValueText(layer, *field), after = ValueText(later, *field);
    if (fate.changed.empty() && before != after) fate.changed = absl::StrCat(path, " = ", before, " becomes ", after);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> LayersWithoutEffect(const std::vector<std::string>& files) {
  std::vector<std::string> warnings;
  for (size_t i = 0; i + 1 < files.size(); ++i) {
    HADAL_ASSIGN_OR_RETURN(const config::RunConfig layer, LoadConfig({files[i]}, {}));
    HADAL_ASSIGN_OR_RETURN(const config::RunConfig later, LoadConfig({files.begin() + i + 1, files.end()}, {}));
    Fate fate;
    Follow(layer, later, "", fate);
    if (!fate.all_set_again || fate.changed.empty()) continue;
    warnings.push_back(absl::StrCat(files[i], " has no effect: later files set all of its ", fate.fields, " fields (",
                                    fate.changed, "). Later files override earlier ones; give the base first."));
  }
  return warnings;
}

}  // namespace hadal
