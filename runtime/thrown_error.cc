#include "runtime/thrown_error.h"

#include <exception>
#include <new>
#include <system_error>
#include "runtime/status_macros.h"

namespace hadal {

absl::Status ErrorOfException() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("not enough memory on this host; use smaller inputs, or fewer processes at once");
  } catch (const std::system_error& error) {
    return ResourceExhaustedError("the system refused a request (", error.what(),
                                  "); the limits on threads or memory may be reached: see ulimit -u and ulimit -v");
  } catch (const std::exception& error) {
    return InternalError("unexpected: ", error.what());
  } catch (...) {
    return InternalError("unexpected exception without a message");
  }
}

}  // namespace hadal
