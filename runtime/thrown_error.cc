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
        "this host has not enough memory for what was asked; ask for less of it at once");
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system refuses what was asked of it (", error.what(),
                     "); more threads or memory than this process may have? See ulimit -u and ulimit -v"));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("unexpected: ", error.what()));
  } catch (...) {
    return absl::InternalError("unexpected: an exception without words");
  }
}

}  // namespace hadal
