// A model's settings as a JSON object: in a checkpoint's manifest, and beside an exported model, for readers in any language.
#pragma once

#include <string>

#include "layers/model_options.h"

namespace hadal {

// The fields of ModelOptions under their own names; enumerations as words.
std::string ModelSettingsJson(const ModelOptions& options);

}  // namespace hadal
