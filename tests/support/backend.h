// What the conformance tests of all operations say of a backend: a struct with a `name` and a number of `variations`.
#pragma once

#include <ostream>

#include "gtest/gtest.h"

namespace hadal::testing {

template <typename Backend>
requires requires(const Backend& backend) { backend.name, backend.variations; }
void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

// Names an instance after its backend.
inline auto BackendName() {
  return [](const auto& info) { return info.param.name; };
}

}  // namespace hadal::testing
