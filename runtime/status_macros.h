// Early return on absl::Status errors.
#pragma once

#include <utility>

#include "absl/status/statusor.h"

// Evaluates an expression of type absl::Status; if it is an error, returns it from the enclosing function.
#define HADAL_RETURN_IF_ERROR(expression)                               \
  do {                                                                  \
    if (absl::Status hadal_status = (expression); !hadal_status.ok()) { \
      return hadal_status;                                              \
    }                                                                   \
  } while (false)

#define HADAL_STATUS_CONCAT_INNER(a, b) a##b
#define HADAL_STATUS_CONCAT(a, b) HADAL_STATUS_CONCAT_INNER(a, b)

// HADAL_ASSIGN_OR_RETURN(auto value, MakeValue()): declares or assigns `value`; if MakeValue() fails, returns its
// error.
#define HADAL_ASSIGN_OR_RETURN(target, expression) \
  HADAL_ASSIGN_OR_RETURN_INNER(HADAL_STATUS_CONCAT(hadal_status_or_, __LINE__), target, expression)
#define HADAL_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                    \
  if (!result.ok()) return result.status();                      \
  target = *std::move(result)
