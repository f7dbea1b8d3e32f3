#include "runtime/thrown_error.h"

#include <exception>
#include <new>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace hadal {

absl::Status ErrorOfException() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "not enough memory on this host; use smaller inputs, or fewer processes at once");
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system refused a request (", error.what(),
                     "); the limits on threads or memory may be reached: see ulimit -u and ulimit -v"));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("unexpected: ", error.what()));
  } catch (...) {
    return absl::InternalError("unexpected exception without a message");
  }
}

}  // namespace hadal
