#include "runtime/strict_json.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

// Watches the parser's events. Throws to stop it: the exception is caught a few lines below.
class Watcher {
 public:
  explicit Watcher(int max_depth) : max_depth_(max_depth) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    switch (event) {
      case Json::parse_event_t::object_start:
        keys_.emplace_back();
        [[fallthrough]];
      case Json::parse_event_t::array_start:
        if (depth >= max_depth_) throw std::runtime_error(absl::StrCat("nested deeper than ", max_depth_, " levels"));
        break;
      case Json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case Json::parse_event_t::key:
        if (const auto& key = value.get_ref<const std::string&>(); !keys_.back().insert(key).second) {
          throw std::runtime_error(absl::StrCat("the key \"", key, "\" appears twice in one object"));
        }
        break;
      default:
        break;
    }
    return true;
  }

 private:
  int max_depth_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

absl::StatusOr<Json> ParseStrictJson(std::string_view text, const StrictJsonLimits& limits, const std::string& what) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return absl::DataLossError(
        absl::StrCat(what, ": ", text.size(), " bytes of JSON, more than the limit of ", limits.max_bytes));
  }
  try {
    return Json::parse(text, Watcher(limits.max_depth));
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(what, ": not valid: ", error.what()));
  }
}

}  // namespace hadal
