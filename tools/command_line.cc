#include "tools/command_line.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/text.h"
#include "tools/config/nearest_name.h"

namespace hadal {
namespace {

template <typename T>
struct ElementOf {
  using Type = T;
};
template <typename T>
struct ElementOf<std::optional<T>> : ElementOf<T> {};
template <typename T>
struct ElementOf<std::vector<T>> : ElementOf<T> {};

// CLI11 takes -1 for the largest unsigned number, and lets NaN pass every range.
template <typename T>
std::string FaultOfNumber(const std::string& text) {
  T value{};
  if constexpr (std::is_floating_point_v<T>) {
    if (absl::SimpleAtod(text, &value) && std::isfinite(value)) return "";
    return absl::StrCat("Value ", text, " is not a finite number");
  } else {
    if (absl::SimpleAtoi(text, &value)) return "";
    const bool negative = std::is_unsigned_v<T> && text.starts_with('-');
    return absl::StrCat("Value ", text, " is ", negative ? "negative" : "not an integer of its range");
  }
}

// Adds an option of T by add(name); numbers get their rule. `name`: as in Command::AddOption.
template <typename T, typename Add>
CommandOption AddTyped(const std::string& name, const Add& add) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits(' ', 1));
  CLI::Option* const option = add(parts.first);
  if (!parts.second.empty()) option->type_name(parts.second);
  using Number = typename ElementOf<T>::Type;
  if constexpr (std::is_arithmetic_v<Number>) CommandOption(option).Checked(FaultOfNumber<Number>);
  return CommandOption(option);
}

}  // namespace

CommandOption CommandOption::Required() { return CommandOption(option_->required()); }
CommandOption CommandOption::ShowDefault() { return CommandOption(option_->capture_default_str()); }
CommandOption CommandOption::InRange(int least, int most) {
  return CommandOption(option_->check(CLI::Range(least, most)));
}
CommandOption CommandOption::InRange(int64_t least, int64_t most) {
  return CommandOption(option_->check(CLI::Range(least, most)));
}
CommandOption CommandOption::InRange(double least, double most) {
  return CommandOption(option_->check(CLI::Range(least, most)));
}
CommandOption CommandOption::OneOf(const std::vector<std::string>& words) {
  return CommandOption(option_->check(CLI::IsMember(words)));
}
CommandOption CommandOption::Checked(const std::function<std::string(const std::string& value)>& fault) {
  option_->check(CLI::Validator([fault](std::string& value) { return fault(value); }, ""));
  return *this;
}

CommandOption CommandOption::Needs(CommandOption other) { return CommandOption(option_->needs(other.option_)); }
CommandOption CommandOption::Excludes(CommandOption other) { return CommandOption(option_->excludes(other.option_)); }
CommandOption CommandOption::OneValueEach() { return CommandOption(option_->allow_extra_args(false)); }
CommandOption CommandOption::MayLackValue() { return CommandOption(option_->expected(0, 1)); }
CommandOption CommandOption::SplitAt(char separator) { return CommandOption(option_->delimiter(separator)); }

Command Command::AddCommand(const std::string& name, const std::string& description) {
  return Command(app_->add_subcommand(name, description));
}

Command Command::FindCommand(const std::string& name) { return Command(app_->get_subcommand(name)); }

void Command::RequireCommand() { app_->require_subcommand(1); }

void Command::Runs(const std::function<void()>& run) { app_->callback(run); }

template <typename T>
CommandOption Command::AddOption(const std::string& name, T& value, const std::string& description) {
  return AddTyped<T>(name, [&](const std::string& flags) { return app_->add_option(flags, value, description); });
}

template CommandOption Command::AddOption(const std::string&, int&, const std::string&);
template CommandOption Command::AddOption(const std::string&, int64_t&, const std::string&);
template CommandOption Command::AddOption(const std::string&, uint64_t&, const std::string&);
template CommandOption Command::AddOption(const std::string&, double&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::string&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::optional<int>&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::optional<uint64_t>&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::optional<double>&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::vector<int>&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::vector<int64_t>&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::vector<uint64_t>&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::vector<double>&, const std::string&);
template CommandOption Command::AddOption(const std::string&, std::vector<std::string>&, const std::string&);

template <typename T>
CommandOption Command::AddSetter(const std::string& name, const std::function<void(const T& value)>& set,
                                 const std::string& description) {
  return AddTyped<T>(name,
                     [&](const std::string& flags) { return app_->add_option_function<T>(flags, set, description); });
}

template CommandOption Command::AddSetter(const std::string&, const std::function<void(const int64_t&)>&,
                                          const std::string&);
template CommandOption Command::AddSetter(const std::string&, const std::function<void(const std::string&)>&,
                                          const std::string&);

CommandOption Command::AddFlag(const std::string& name, bool& given, const std::string& description) {
  return CommandOption(app_->add_flag(name, given, description));
}

CommandOption Command::AddFlag(const std::string& name, const std::function<void()>& given,
                               const std::string& description) {
  return CommandOption(app_->add_flag_callback(name, given, description));
}

void Command::AddAnswer(const std::string& name, const std::function<std::string()>& text,
                        const std::string& description) {
  app_->add_flag_callback(
      name,
      [text] {
        std::cout << text() << std::flush;
        throw CLI::Success();
      },
      description);
}

CommandOption Command::AddWord(const std::string& name, const std::vector<std::string>& words,
                               const std::function<void(size_t chosen)>& chosen, const std::string& description) {
  const auto set = [words, chosen](const std::string& word) {
    chosen(static_cast<size_t>(std::find(words.begin(), words.end(), word) - words.begin()));
  };
  const auto fault = [words](const std::string& word) -> std::string {
    if (std::find(words.begin(), words.end(), word) != words.end()) return "";
    const std::string nearest = NearestName(word, words);
    return absl::StrCat("\"", word, "\" is not one of ", absl::StrJoin(words, ", "),
                        nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"));
  };
  return AddSetter<std::string>(absl::StrCat(name, " ", absl::StrJoin(words, "|")), set, description).Checked(fault);
}

namespace {

// "; did you mean --run-dir?" for the first of the words that `command` lacks, or "".
std::string Suggestion(const CLI::App& command, const std::vector<std::string>& unknown) {
  if (unknown.empty()) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* subcommand : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(subcommand->get_name());
  }
  const std::string nearest = NearestName(unknown.front().substr(0, unknown.front().find('=')), names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace

CommandLine::CommandLine(const std::string& program, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, program)) {}

CommandLine::~CommandLine() = default;

Command CommandLine::program() { return Command(app_.get()); }

std::string CommandLine::Help() const { return app_->help(); }

std::vector<std::string> CommandLine::CommandNames() const {
  std::vector<std::string> names;
  for (const CLI::App* command : app_->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

CommandLine::Outcome CommandLine::Run(int argc, const char* const* argv, std::ostream& errors) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error), Outcome::kAnswered;  // prints the help
    std::string command = app_->get_name();
    const CLI::App* chosen = app_.get();
    while (!chosen->get_subcommands().empty()) {
      chosen = chosen->get_subcommands().front();
      absl::StrAppend(&command, " ", chosen->get_name());
    }
    errors << command << ": " << PrintableMessage(error.what())
           << Suggestion(*chosen, app_->remaining(/*recurse=*/true)) << "\n`" << command
           << " --help` lists what it accepts.\n";
    return Outcome::kRefused;
  }
  return Outcome::kRan;
}

CommandLine::Outcome CommandLine::Run(const std::vector<std::string>& arguments) {
  const std::string program = app_->get_name();
  std::vector<const char*> words{program.c_str()};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  return Run(static_cast<int>(words.size()), words.data(), std::cerr);
}

}  // namespace hadal
