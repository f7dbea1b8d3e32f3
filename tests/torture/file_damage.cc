#include "tests/torture/file_damage.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace hadal::torture {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kTimeoutSeconds = 60;

// Twice the same call restores the file.
void FlipBit(const std::string& path, int64_t byte) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  char value = 0;
  if (pread(file, &value, 1, byte) == 1) {
    value = static_cast<char>(value ^ 0x40);
    if (pwrite(file, &value, 1, byte) != 1) value = 0;
  }
  close(file);
}

int64_t Size(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

void ReplaceByTextOfLink(const std::string& path) {
  const std::string target = fs::read_symlink(path).string();
  fs::remove(path);
  std::ofstream(path) << target << "\n";
}

}  // namespace

pid_t StartProgram(const std::vector<std::string>& words, const std::string& log, unsigned timeout_seconds) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE);
  prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH);
  alarm(timeout_seconds);  // 0: none
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), in = open("/dev/null", O_RDONLY);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execv(arguments[0], arguments.data());
  _exit(127);
}

const char* NameOf(Damage damage) {
  constexpr std::array<const char*, kDamages> kNames = {"missing",
                                                        "empty",
                                                        "truncated",
                                                        "flipped at its beginning",
                                                        "flipped in its middle",
                                                        "link",
                                                        "dangling link",
                                                        "pipe",
                                                        "directory",
                                                        "device",
                                                        "sparse",
                                                        "unreadable",
                                                        "changing"};
  return kNames[static_cast<size_t>(damage)];
}

bool Apply(Damage damage, const std::string& path, const std::string& spare) {
  const bool linked = damage == Damage::kLink || damage == Damage::kDangling;
  const bool was_link = fs::is_symlink(path);
  if (was_link && damage != Damage::kMissing && !linked) ReplaceByTextOfLink(path);
  const int64_t bytes = Size(path);
  switch (damage) {
    case Damage::kMissing:
      return fs::remove(path);
    case Damage::kEmpty:
      return truncate(path.c_str(), 0) == 0;
    case Damage::kTruncated:
      return truncate(path.c_str(), bytes / 2) == 0;
    case Damage::kFlippedBegin:
      FlipBit(path, std::min<int64_t>(20, bytes / 4));
      return true;
    case Damage::kFlippedMiddle:
      FlipBit(path, bytes / 2);
      return true;
    case Damage::kSparse:
      return truncate(path.c_str(), 0) == 0 && truncate(path.c_str(), bytes) == 0;
    case Damage::kUnreadable:
      return chmod(path.c_str(), 0) == 0;
    case Damage::kChanging:
      return true;
    default:
      break;
  }
  fs::rename(path, spare);
  switch (damage) {
    case Damage::kLink:
      return symlink(was_link ? "../.." : spare.c_str(), path.c_str()) == 0;
    case Damage::kDangling:
      return symlink("nowhere", path.c_str()) == 0;
    case Damage::kPipe:
      return mkfifo(path.c_str(), 0644) == 0;
    case Damage::kDirectory:
      return mkdir(path.c_str(), 0755) == 0 && mkdir((path + "/inside").c_str(), 0755) == 0;
    default:
      return mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0;
  }
}

int RunProgram(const std::vector<std::string>& words, const std::string& log, const std::string& changing) {
  const pid_t child = StartProgram(words, log, kTimeoutSeconds);
  const int64_t bytes = changing.empty() ? 0 : Size(changing);
  int status = 0;
  for (int64_t round = 0; waitpid(child, &status, changing.empty() ? 0 : WNOHANG) == 0; ++round) {
    const int64_t byte = bytes * (round % 17) / 17;
    FlipBit(changing, byte);
    usleep(500);
    FlipBit(changing, byte);
    usleep(500);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace hadal::torture
