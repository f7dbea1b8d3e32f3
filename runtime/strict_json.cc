#include "runtime/strict_json.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

// The first of two passes: receives the parser's events, builds nothing, and stops at the first fault. (The library's
// filter of the second pass could do this, but takes time quadratic in the number of objects in one object.)
class Checker final : public nlohmann::json_sax<Json> {
 public:
  explicit Checker(int max_depth) : max_depth_(max_depth) {}

  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    error_ = absl::StrCat("the key \"", name, "\" appears twice in one object");
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& exception) override {
    error_ = exception.what();
    return false;
  }

 private:
  bool Open() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) <= max_depth_) return true;
    error_ = absl::StrCat("nested deeper than ", max_depth_, " levels");
    return false;
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  int max_depth_;
  std::vector<std::set<std::string>> keys_;  // of the open objects and arrays; empty for arrays
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> ParseStrictJson(std::string_view text, const StrictJsonLimits& limits, const std::string& what) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return absl::DataLossError(
        absl::StrCat(what, ": ", text.size(), " bytes of JSON, more than the limit of ", limits.max_bytes));
  }
  try {
    Checker checker(limits.max_depth);
    if (!Json::sax_parse(text, &checker)) {
      return absl::DataLossError(absl::StrCat(what, ": not valid: ", checker.error()));
    }
    return Json::parse(text);
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(what, ": not valid: ", error.what()));
  }
}

}  // namespace hadal
