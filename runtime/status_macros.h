// Short forms for absl::Status: early return on errors, and errors whose message is put together.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

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

namespace hadal {

// InvalidArgumentError("chunks = ", n, " is not allowed") is absl::InvalidArgumentError with the parts in a row, as
// absl::StrCat joins them; likewise the other kinds.
#define HADAL_DEFINE_ERROR(Error)               \
  template <typename... Parts>                  \
  absl::Status Error(const Parts&... parts) {   \
    return absl::Error(absl::StrCat(parts...)); \
  }
HADAL_DEFINE_ERROR(AbortedError)
HADAL_DEFINE_ERROR(AlreadyExistsError)
HADAL_DEFINE_ERROR(DataLossError)
HADAL_DEFINE_ERROR(DeadlineExceededError)
HADAL_DEFINE_ERROR(FailedPreconditionError)
HADAL_DEFINE_ERROR(InternalError)
HADAL_DEFINE_ERROR(InvalidArgumentError)
HADAL_DEFINE_ERROR(NotFoundError)
HADAL_DEFINE_ERROR(OutOfRangeError)
HADAL_DEFINE_ERROR(PermissionDeniedError)
HADAL_DEFINE_ERROR(ResourceExhaustedError)
HADAL_DEFINE_ERROR(UnavailableError)
HADAL_DEFINE_ERROR(UnimplementedError)
#undef HADAL_DEFINE_ERROR

}  // namespace hadal
