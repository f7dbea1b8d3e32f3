#include "tools/config/config_arguments.h"

namespace hadal {

void AddConfigArguments(CLI::App& command, ConfigArguments& arguments) {
  command
      .add_option("FILES", arguments.files, "Config files, base first; later ones override; a run directory is one too")
      ->required();
  command.add_option("--set", arguments.overrides, "Override one field: --set model.heads=8 (repeatable)")
      ->type_name("FIELD=VALUE")
      ->allow_extra_args(false);
}

}  // namespace hadal
