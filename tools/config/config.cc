#include "tools/config/config.h"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/printable.h"
#include "runtime/status_macros.h"
#include "tools/config/config_arguments.h"
#include "tools/config/config_difference.h"
#include "tools/config/config_explanation.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_origin.h"
#include "tools/config/resolved_config.h"
#include "tools/config/run_options.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

absl::StatusOr<std::string> Show(const ConfigArguments& arguments) {
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig config, LoadConfig(arguments.files, arguments.overrides));
  const absl::StatusOr<RunOptions> options = MakeRunOptions(config);
  if (!options.ok()) return WithOrigins(options.status(), arguments.files, arguments.overrides);
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

  Command explain = command.AddCommand("explain", "Print a field's meaning, default and allowed values");
  auto field = std::make_shared<std::string>();
  explain.AddOption("FIELD", *field, "Dotted path, such as model.residual.method; none: lists all groups");
  auto grid = std::make_shared<bool>(false);
  explain.AddFlag("--grid", *grid, "Explain a field of the grids that `hadal compare` reads");
  explain.Runs([field, grid, &exit_code] {
    exit_code = EndTool("config explain", ExplainField(*field, *grid ? ConfigSchema::kGrid : ConfigSchema::kRun));
  });
}

}  // namespace hadal
