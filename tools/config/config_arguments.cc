#include "tools/config/config_arguments.h"

namespace hadal {

void AddConfigArguments(Command command, ConfigArguments& arguments) {
  command.AddOption("FILES", arguments.files, "Config files, base first; later ones override; or a run directory")
      .Required();
  command.AddOption("--set", arguments.overrides, "Override one field: --set model.heads=8 (repeatable)")
      .ValueName("FIELD=VALUE")
      .OneValueEach();
}

}  // namespace hadal
