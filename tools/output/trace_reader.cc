#include "tools/output/trace_reader.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

constexpr char kEvents[] = "traceEvents";

// Builds values as the parser reports them, and passes events to the visitor instead of storing them.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(const std::function<void(const Json&)>& visit) : visit_(visit) {}

  Json TakeRoot() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& exception) override {
    error_ = exception.what();
    return false;
  }

 private:
  // An open object or array, and the key of the next value.
  struct Container {
    Json value;
    std::string key;
  };

  bool Open(Json empty) {
    open_.push_back({.value = std::move(empty), .key = {}});
    return true;
  }
  bool Close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }
  bool InEvents() const {
    return open_.size() == 2 && open_[0].value.is_object() && open_[0].key == kEvents && open_[1].value.is_array();
  }
  bool Add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (InEvents()) {
      visit_(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.push_back(std::move(value));
    } else {
      open_.back().value[open_.back().key] = std::move(value);
    }
    return true;
  }

  const std::function<void(const Json&)>& visit_;
  std::vector<Container> open_;
  Json root_;
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> VisitTraceEvents(const std::string& json, const std::function<void(const Json&)>& visit) {
  Reader reader(visit);
  if (!Json::sax_parse(json, &reader)) {
    return absl::DataLossError(absl::StrCat("the trace cannot be read: ", reader.error()));
  }
  Json trace = reader.TakeRoot();
  if (!trace.is_object() || !trace.contains(kEvents) || !trace[kEvents].is_array()) {
    return absl::DataLossError("the trace cannot be read: it has no list of events");
  }
  return trace;
}

}  // namespace hadal
