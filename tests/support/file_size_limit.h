// Simulates a full disk: while the object lives, no file of this process may grow beyond `bytes` (RLIMIT_FSIZE), and a
// write beyond it fails with EFBIG.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "runtime/check.h"

namespace hadal {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    HADAL_CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old_), 0);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    HADAL_CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*old_handler_)(int);
  rlimit old_ = {};
};

}  // namespace hadal
