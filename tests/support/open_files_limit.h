// While the object lives, this process can open only `more` further files (RLIMIT_NOFILE); then open fails with EMFILE.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/check.h"

namespace hadal {

class OpenFilesLimit {
 public:
  // REQUIRES: the lowest free descriptor and the `more` − 1 after it are free.
  explicit OpenFilesLimit(int more) {
    const int lowest_free = open("/dev/null", O_RDONLY | O_CLOEXEC);
    HADAL_CHECK_GE(lowest_free, 0);
    close(lowest_free);
    HADAL_CHECK_EQ(getrlimit(RLIMIT_NOFILE, &old_), 0);
    rlimit limit = old_;
    limit.rlim_cur = static_cast<rlim_t>(lowest_free + more);
    HADAL_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~OpenFilesLimit() { setrlimit(RLIMIT_NOFILE, &old_); }
  OpenFilesLimit(const OpenFilesLimit&) = delete;
  OpenFilesLimit& operator=(const OpenFilesLimit&) = delete;

 private:
  rlimit old_ = {};
};

}  // namespace hadal
