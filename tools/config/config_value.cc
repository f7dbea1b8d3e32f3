#include "tools/config/config_value.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/text_format.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tools/config/nearest_name.h"

namespace hadal {
namespace {

using google::protobuf::Reflection;

// One element of a list, or the value if the field is not a list.
std::string ElementText(const ConfigMessage& message, const FieldDescriptor& field, int index) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  printer.PrintFieldValueToString(message, &field, field.is_repeated() ? index : -1, &text);
  return text;
}

absl::string_view StripQuotes(absl::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') return text.substr(1, text.size() - 2);
  return text;
}

bool SetList(const FieldDescriptor& field, absl::string_view text, ConfigMessage& message) {
  if (absl::ConsumePrefix(&text, "[") && !absl::ConsumeSuffix(&text, "]")) return false;
  const Reflection& reflection = *message.GetReflection();
  reflection.ClearField(&message, &field);
  if (absl::StripAsciiWhitespace(text).empty()) return true;
  const bool is_double = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      reflection.AddString(&message, &field, std::string(StripQuotes(absl::StripAsciiWhitespace(item))));
      continue;
    }
    int32_t integer = 0;
    double number = 0;
    if (is_double ? !absl::SimpleAtod(item, &number) : !absl::SimpleAtoi(item, &integer)) return false;
    is_double ? reflection.AddDouble(&message, &field, number) : reflection.AddInt32(&message, &field, integer);
  }
  return true;
}

// Returns false if the text does not have the field's type.
bool SetTyped(const FieldDescriptor& field, absl::string_view text, ConfigMessage& message) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) return SetList(field, text, message);
  const auto set = [&](auto value, auto parse, auto store) {
    if (!parse(text, &value)) return false;
    (reflection.*store)(&message, &field, value);
    return true;
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(int32_t{}, absl::SimpleAtoi<int32_t>, &Reflection::SetInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return set(int64_t{}, absl::SimpleAtoi<int64_t>, &Reflection::SetInt64);
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(uint64_t{}, absl::SimpleAtoi<uint64_t>, &Reflection::SetUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(double{}, absl::SimpleAtod, &Reflection::SetDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(bool{}, absl::SimpleAtob, &Reflection::SetBool);
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(&message, &field, std::string(StripQuotes(text)));
      return true;
    default:
      return false;
  }
}

absl::Status WrongValue(absl::string_view path, const std::string& value, const FieldDescriptor& field) {
  std::string hint;
  if (const std::string nearest = NearestName(StripQuotes(value), ValuesOf(field)); !nearest.empty()) {
    hint = absl::StrCat("; did you mean \"", nearest, "\"?");
  }
  return InvalidArgumentError(path, " = ", value, " is not allowed; it must be ", AllowedText(field), hint);
}

}  // namespace

std::string ValueText(const ConfigMessage& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return ElementText(message, field, -1);
  std::vector<std::string> elements(message.GetReflection()->FieldSize(message, &field));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = ElementText(message, field, static_cast<int>(i));
  return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
}

absl::Status SetFromText(absl::string_view path, const FieldDescriptor& field, absl::string_view text,
                         ConfigMessage& message) {
  text = absl::StripAsciiWhitespace(text);
  if (!SetTyped(field, text, message)) {
    return InvalidArgumentError(path, ": expected ", AllowedText(field), ", got \"", text, "\"");
  }
  return CheckValue(path, message, field);
}

absl::Status CheckValue(absl::string_view path, const ConfigMessage& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (IsMessage(field)) return absl::OkStatus();
  const int elements =
      field.is_repeated() ? reflection.FieldSize(message, &field) : reflection.HasField(message, &field);
  if (const std::optional<Interval> range = RangeOf(field)) {
    for (int i = 0; i < elements; ++i) {
      const std::string text = ElementText(message, field, i);
      double number = 0;
      HADAL_CHECK(absl::SimpleAtod(text, &number));  // ranges are of numbers
      if (!range->Contains(number)) return WrongValue(path, text, field);
    }
  }
  if (const std::vector<std::string> values = ValuesOf(field); !values.empty() && elements > 0) {
    const std::string value = reflection.GetString(message, &field);
    if (std::find(values.begin(), values.end(), value) == values.end()) {
      return WrongValue(path, ElementText(message, field, -1), field);
    }
  }
  return absl::OkStatus();
}

}  // namespace hadal
