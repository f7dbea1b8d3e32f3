#include "tools/config/config_explanation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "configs/compare.pb.h"
#include "runtime/status_macros.h"
#include "tools/config/config_schema.h"

namespace hadal {
namespace {

// The end of the first sentence; "..." ends none.
size_t SentenceEnd(const std::string& text) {
  size_t end = text.find_first_of('.');
  while (end != std::string::npos) {
    const size_t after = text.find_first_not_of('.', end);
    if (after == std::string::npos || (after == end + 1 && (text[after] == ' ' || text[after] == '\n'))) return end;
    end = text.find_first_of('.', after);
  }
  return end;
}

// The comment up to the end of its first sentence or line of a list.
std::string Summary(const FieldDescriptor& field) {
  const std::string comment = CommentText(field);
  const size_t end = SentenceEnd(comment);
  const size_t list = comment.find(":\n");
  std::string summary = comment.substr(0, std::min(end, list));
  while (!summary.empty() && (summary.back() == '.' || summary.back() == ':')) summary.pop_back();
  return absl::StrReplaceAll(summary, {{"\n", " "}});
}

std::string Pad(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string Children(const MessageDescriptor& message) {
  size_t width = 0;
  for (int i = 0; i < message.field_count(); ++i) width = std::max(width, message.field(i)->name().size());
  std::string text;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    absl::StrAppend(&text, "  ", Pad(field.name(), width + 2), Summary(field));
    if (!IsMessage(field)) absl::StrAppend(&text, "  [", DefaultText(field), "]");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ExplainField(absl::string_view path, ConfigSchema schema) {
  const bool grid = schema == ConfigSchema::kGrid;
  const MessageDescriptor& root = grid ? *config::Comparison::descriptor() : *config::RunConfig::descriptor();
  if (path.empty()) return absl::StrCat(grid ? "A grid of runs:\n" : "The config of a run:\n", Children(root));
  HADAL_ASSIGN_OR_RETURN(const std::vector<const FieldDescriptor*> fields, FindField(path, root));
  const FieldDescriptor& field = *fields.back();
  const std::string comment = absl::StrCat("  ", absl::StrReplaceAll(CommentText(field), {{"\n", "\n  "}}), "\n");
  if (IsMessage(field)) return absl::StrCat(path, "\n", comment, "\n", Children(*field.message_type()));
  std::string text = absl::StrCat(path, "  (", TypeText(field), ")\n", comment, "\n  default: ", DefaultText(field),
                                  "\n  allowed: ", AllowedText(field), "\n");
  if (const auto* alternatives = field.real_containing_oneof()) {
    for (int i = 0; i < alternatives->field_count(); ++i) {
      if (alternatives->field(i) != &field)
        absl::StrAppend(&text, "  instead of: ", alternatives->field(i)->name(), "\n");
    }
  }
  if (grid) return text;
  return absl::StrCat(
      text, "  on resume: ", MayChangeOnResume(field) ? "may change" : "a change needs --accept-changes", "\n");
}

}  // namespace hadal
