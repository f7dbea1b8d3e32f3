#include "tools/config/config_position.h"

#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace hadal {
namespace {

using google::protobuf::io::Tokenizer;

// The parser has reported the error already.
class IgnoreErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

// Follows the grammar of text format loosely:  field = NAME [":"] VALUE,  VALUE = scalar | "[" list "]" | "{" fields
// "}".
class Walk {
 public:
  void Take(const Tokenizer::Token& token) {
    if (Continues(token)) {
      value_text_ += token.text;
      value_end_.column = token.end_column;
    } else if (token.text == ":") {
      state_ = State::kValue;
    } else if (token.text == "{" || token.text == "<") {
      Open();
    } else if (token.text == "}" || token.text == ">") {
      Close();
    } else if (state_ == State::kValue || state_ == State::kList) {
      TakeValue(token);
    } else if (token.type == Tokenizer::TYPE_IDENTIFIER) {
      last_ = token.text;
      name_ = {token.line, token.column};
      value_text_.clear();
      state_ = State::kNamed;
    }
  }

  bool expects_value() const { return state_ == State::kValue || state_ == State::kList; }

  // Whether the token continues a scalar without a blank: "1f1b" is tokenised as "1f" and "1b", "-1" as "-" and "1".
  bool Continues(const Tokenizer::Token& token) const {
    return !value_text_.empty() && TextPosition{token.line, token.column} == value_end_ &&
           (token.type != Tokenizer::TYPE_SYMBOL || token.text == "." || token.text == "-");
  }

  FieldAtPosition At(TextPosition position) const {
    FieldAtPosition field{.path = parents_, .name = name_, .value = value_, .value_text = value_text_};
    if (!last_.empty()) field.path.push_back(last_);
    field.in_value = !value_text_.empty() && position >= value_ && position < value_end_;
    if (!field.in_value && expects_value()) {
      field.in_value = true;
      field.value = position;
      field.value_text.clear();
    }
    return field;
  }

 private:
  enum class State { kName, kNamed, kValue, kList };

  void TakeValue(const Tokenizer::Token& token) {
    if (token.text == "[") {
      state_ = State::kList;
    } else if (token.text == "]") {
      state_ = State::kName;
    } else if (token.text != ",") {
      value_ = {token.line, token.column};
      value_end_ = {token.line, token.end_column};
      value_text_ = token.text;
      if (state_ == State::kValue) state_ = State::kName;
    }
  }

  void Open() {
    if (last_.empty()) return;
    parents_.push_back(last_);
    names_.push_back(name_);
    Reset();
  }

  void Close() {
    if (!parents_.empty()) {
      parents_.pop_back();
      names_.pop_back();
    }
    Reset();
  }

  void Reset() {
    last_.clear();
    name_ = names_.empty() ? TextPosition{} : names_.back();
    value_text_.clear();
    state_ = State::kName;
  }

  State state_ = State::kName;
  std::vector<std::string> parents_;  // names of the open groups, and where each is named
  std::vector<TextPosition> names_;
  std::string last_;  // the last field named in the innermost group
  TextPosition name_;
  TextPosition value_, value_end_;
  std::string value_text_;
};

}  // namespace

FieldAtPosition FieldAt(absl::string_view text, TextPosition position) {
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  IgnoreErrors errors;
  Tokenizer tokenizer(&stream, &errors);
  tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  tokenizer.set_allow_f_after_float(true);
  Walk walk;
  while (tokenizer.Next()) {
    const Tokenizer::Token& token = tokenizer.current();
    const TextPosition start{token.line, token.column};
    const bool is_the_value = start == position && walk.expects_value() && token.text != "}";
    if (start >= position && !is_the_value && !walk.Continues(token)) break;
    walk.Take(token);
  }
  return walk.At(position);
}

}  // namespace hadal
