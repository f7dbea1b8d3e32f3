#include "tools/corpus/text_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <ios>
#include <streambuf>

#include "absl/strings/str_cat.h"
#include "runtime/files.h"

namespace hadal {
namespace {

// zlib passes a file that is not compressed on as it is.
class GzipBuffer : public std::streambuf {
 public:
  explicit GzipBuffer(int file) : file_(gzdopen(file, "rb")) {}
  ~GzipBuffer() override { gzclose(file_); }

 protected:
  int underflow() override {
    const int bytes = gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int error = Z_OK;
    const char* message = gzerror(file_, &error);
    if (bytes < 0 || (bytes == 0 && error != Z_OK)) throw std::ios_base::failure(message);  // the stream becomes bad()
    if (bytes == 0) return traits_type::eof();
    setg(buffer_.data(), buffer_.data(), buffer_.data() + bytes);
    return traits_type::to_int_type(buffer_[0]);
  }

 private:
  gzFile file_;
  std::array<char, size_t{1} << 16> buffer_;
};

class GzipStream : public std::istream {
 public:
  explicit GzipStream(int file) : std::istream(nullptr), buffer_(file) { rdbuf(&buffer_); }

 private:
  GzipBuffer buffer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<std::istream>> OpenText(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts = {};
  if (file < 0 || fstat(file, &facts) != 0) return ErrnoStatus(errno, "open", path);
  if (!S_ISREG(facts.st_mode) && !S_ISFIFO(facts.st_mode) && isatty(file) == 0) {
    close(file);
    return absl::InvalidArgumentError(absl::StrCat(path, " is a folder or a device; give a file or a pipe of text"));
  }
  return std::make_unique<GzipStream>(file);
}

}  // namespace hadal
