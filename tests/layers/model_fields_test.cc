#include "layers/model_fields.h"

#include <cstddef>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace hadal {
namespace {

struct Anything {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

// How many fields an aggregate has: as many as it can be initialised from.
template <typename Aggregate, typename... Fields>
constexpr size_t FieldsOf() {
  if constexpr (requires { Aggregate{Fields()..., Anything()}; }) {
    return FieldsOf<Aggregate, Fields..., Anything>();
  } else {
    return sizeof...(Fields);
  }
}

// Holds what a visitor is told against the options' own fields: as many, and each another one.
template <typename Options>
struct Seen {
  Options options;
  std::set<std::string> names;
  std::set<const void*> members;

  void Add(const char* name, const void* member) {
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(members.insert(member).second) << name << " is the member of another name";
  }
};

TEST(ModelFields, AreAllOfAStack) {
  Seen<StackMethod> seen;
  ForEachStackField(
      [&](const char* name, auto member, FieldAge, const auto&...) { seen.Add(name, &(seen.options.*member)); });
  EXPECT_EQ(seen.names.size(), FieldsOf<StackMethod>());
}

TEST(ModelFields, AreAllOfAModel) {
  Seen<ModelOptions> seen;
  ForEachModelField(
      [&](const char* name, auto member, FieldAge, const auto&...) { seen.Add(name, &(seen.options.*member)); });
  EXPECT_EQ(seen.names.size(), FieldsOf<ModelOptions>());
}

}  // namespace
}  // namespace hadal
