// What can happen to a file of a run: the damages of damage.cc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hadal::torture {

enum class Damage : int32_t {
  kMissing,
  kEmpty,
  kTruncated,
  kFlippedBegin,  // a bit of its beginning
  kFlippedMiddle,
  kLink,      // to the intact file elsewhere
  kDangling,  // a link that leads nowhere
  kPipe,
  kDirectory,
  kDevice,
  kSparse,      // the same size, all holes
  kUnreadable,  // by its permissions
  kChanging,    // another process flips and restores bits while it is read
};
inline constexpr int kDamages = static_cast<int>(Damage::kChanging) + 1;

const char* NameOf(Damage damage);

// Damages the file, or a symbolic link, `path`; `spare`: a free path for what is moved away. kChanging: see RunProgram.
// Returns false if this process may not do so (devices need root).
bool Apply(Damage damage, const std::string& path, const std::string& spare);

// Starts a program with its output in `log`. Permissions of files hold also for root. `timeout_seconds`: SIGALRM ends
// it after that time; 0: never.
pid_t StartProgram(const std::vector<std::string>& words, const std::string& log, unsigned timeout_seconds = 0);
// Runs a program for at most a minute.
// `changing`: a file that is changed meanwhile, "" for none. Returns the exit code; 128 + the signal that ended it.
int RunProgram(const std::vector<std::string>& words, const std::string& log, const std::string& changing);

}  // namespace hadal::torture
