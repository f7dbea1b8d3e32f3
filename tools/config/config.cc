#include "tools/config/config.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "configs/compare.pb.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/commands.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_origin.h"
#include "tools/config/config_schema.h"
#include "tools/config/resolved_config.h"
#include "tools/config/run_options.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

absl::StatusOr<std::string> Show(const ConfigArguments& arguments) {
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig config, LoadConfig(arguments.files, arguments.overrides));
  const absl::StatusOr<RunOptions> options = MakeRunOptions(config);
  const absl::Status allowed = options.ok() ? CheckFieldsWithEffect(config) : options.status();
  if (!allowed.ok()) return WithOrigins(allowed, arguments.files, arguments.overrides);
  for (const std::string& warning : options->warnings) std::cerr << "warning: " << Printable(warning) << "\n";
  return ResolvedConfigText(config);
}

absl::StatusOr<std::string> Diff(const std::string& before, const std::string& after) {
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig old_config, LoadConfig({before}, {}));
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig new_config, LoadConfig({after}, {}));
  HADAL_ASSIGN_OR_RETURN(const std::vector<ConfigDifference> differences, CompareConfigs(old_config, new_config));
  std::vector<ConfigDifference> asked, free;
  for (const ConfigDifference& difference : differences) (difference.may_change ? free : asked).push_back(difference);
  std::string text;
  if (!asked.empty()) absl::StrAppend(&text, "may change results:\n", DifferencesText(asked));
  if (!free.empty()) absl::StrAppend(&text, "do not change what is learned:\n", DifferencesText(free));
  return text.empty() ? "no difference\n" : text;
}

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

std::string Children(const MessageDescriptor& message) {
  size_t width = 0;
  for (int i = 0; i < message.field_count(); ++i) width = std::max(width, message.field(i)->name().size());
  std::string text;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    absl::StrAppendFormat(&text, "  %-*s%s", static_cast<int>(width) + 2, field.name(), Summary(field));
    if (!IsMessage(field)) absl::StrAppend(&text, "  [", DefaultText(field), "]");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

void AddConfigCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("config", "Show, compare and explain configs");
  command.RequireCommand();

  Command show = command.AddCommand("show", "Print the resolved config, every field with its value");
  auto arguments = std::make_shared<ConfigArguments>();
  AddConfigArguments(show, *arguments);
  show.Runs([arguments, &exit_code] { exit_code = EndTool("config show", Show(*arguments)); });

  Command diff = command.AddCommand("diff", "Print the fields in which two configs differ");
  auto before = std::make_shared<std::string>();
  auto after = std::make_shared<std::string>();
  diff.AddOption("A", *before, "Config file or run directory").Required();
  diff.AddOption("B", *after, "Config file or run directory").Required();
  diff.Runs([before, after, &exit_code] { exit_code = EndTool("config diff", Diff(*before, *after)); });

  // Run by hadal.cc.
  command.AddCommand("from-fairseq", "Print the config of a fairseq-train command, and what it leaves out");

  Command explain = command.AddCommand("explain", "Print a field's meaning, default and allowed values");
  auto field = std::make_shared<std::string>();
  explain.AddOption("FIELD", *field, "Dotted path, such as model.residual.method; none: lists all groups");
  auto grid = std::make_shared<bool>(false);
  explain.AddFlag("--grid", *grid, "Explain a field of the grids that `hadal compare` reads");
  explain.Runs([field, grid, &exit_code] {
    exit_code = EndTool("config explain", ExplainField(*field, *grid ? ConfigSchema::kGrid : ConfigSchema::kRun));
  });
}

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
