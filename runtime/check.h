// HADAL_CHECK*: assertions. A failed check is a bug in hadal: it prints the source line and both values and aborts.
// Errors that a user, a file or a peer can cause are an absl::Status instead (status_macros.h).
#pragma once

#include <sstream>
#include <string>

namespace hadal {

[[noreturn]] void CheckFailed(const char* file, int line, const std::string& message);

template <typename A, typename B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << text << "  (" << a << " vs. " << b << ")";
  CheckFailed(file, line, out.str());
}

}  // namespace hadal

#define HADAL_CHECK(condition)                              \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::hadal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#define HADAL_CHECK_OP(a, op, b)                                                       \
  do {                                                                                 \
    const auto& hadal_a = (a);                                                         \
    const auto& hadal_b = (b);                                                         \
    if (!(hadal_a op hadal_b)) [[unlikely]]                                            \
      ::hadal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, hadal_a, hadal_b); \
  } while (false)

#define HADAL_CHECK_EQ(a, b) HADAL_CHECK_OP(a, ==, b)
#define HADAL_CHECK_NE(a, b) HADAL_CHECK_OP(a, !=, b)
#define HADAL_CHECK_LT(a, b) HADAL_CHECK_OP(a, <, b)
#define HADAL_CHECK_LE(a, b) HADAL_CHECK_OP(a, <=, b)
#define HADAL_CHECK_GT(a, b) HADAL_CHECK_OP(a, >, b)
#define HADAL_CHECK_GE(a, b) HADAL_CHECK_OP(a, >=, b)
