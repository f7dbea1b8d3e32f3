// Parses the command line: a program, its commands, their options, and the variables that the options set.
//
// A wrapper around CLI11. Only command_line.cc includes CLI11, because that header-only library takes about five
// seconds to compile.
// Command and CommandOption are handles to objects that a CommandLine owns: they can be copied and are valid as long as
// the CommandLine. A variable bound to an option must outlive Run and keeps its value if the option is not given. An
// option that is given twice is an error unless it sets a vector.
// Thread safety: none; one thread builds a command line and runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hadal {

// An option or a flag. Each function adds a rule and returns the option.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption Required();
  // Shows the variable's current value as the default in the help.
  CommandOption ShowDefault();

  // Allows only values in [least, most]; for a vector, checks each value.
  CommandOption InRange(int least, int most);
  CommandOption InRange(int64_t least, int64_t most);
  CommandOption InRange(double least, double most);
  CommandOption OneOf(const std::vector<std::string>& words);
  // Allows only values for which `fault` returns ""; else `fault` returns what is wrong.
  CommandOption Checked(const std::function<std::string(const std::string& value)>& fault);

  // Allows the option only together with `other`, or only without it.
  CommandOption Needs(CommandOption other);
  CommandOption Excludes(CommandOption other);

  // For a vector: takes one value each time the option is given, so that the next word is an argument again.
  CommandOption OneValueEach();
  // The value may be missing: "".
  CommandOption MayLackValue();
  // For a vector: splits one word into several values at `separator`.
  CommandOption SplitAt(char separator);

 private:
  CLI::Option* option_;
};

// The program itself, or one of its commands.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command AddCommand(const std::string& name, const std::string& description);
  // REQUIRES: the command was added.
  Command FindCommand(const std::string& name);
  // Makes it an error to run the command without one of its subcommands.
  void RequireCommand();
  // Sets the function that CommandLine::Run calls for this command.
  void Runs(const std::function<void()>& run);

  // `name`: "--name", "-n,--name", or "NAME" for a positional argument. "--name VALUE" also gives the value's name in
  // the help, instead of INT, FLOAT or TEXT.
  // T: int, int64_t, uint64_t (a negative number is an error), double (NaN and infinity are errors), std::string,
  // std::optional of int, uint64_t or double, std::vector of a number or std::string.
  template <typename T>
  CommandOption AddOption(const std::string& name, T& value, const std::string& description);
  // Adds an option for a number in [least, most], whose default the help shows.
  template <typename T>
  CommandOption AddNumber(const std::string& name, T& value, const std::string& description,
                          std::type_identity_t<T> least, std::type_identity_t<T> most) {
    return AddOption(name, value, description).InRange(least, most).ShowDefault();
  }
  // As AddOption, but passes the value to `set` instead of storing it.  T: int64_t, std::string.
  template <typename T>
  CommandOption AddSetter(const std::string& name, const std::function<void(const T& value)>& set,
                          const std::string& description);
  // Accepts one of `choices` by name. The error for an unknown name suggests the nearest.
  // REQUIRES: an Enum can be assigned to `value`.
  template <typename Enum, typename Value>
  CommandOption AddChoice(const std::string& name, Value& value, const std::string& description,
                          const std::vector<std::pair<std::string, Enum>>& choices);

  CommandOption AddFlag(const std::string& name, bool& given, const std::string& description);
  CommandOption AddFlag(const std::string& name, const std::function<void()>& given, const std::string& description);
  // Adds a flag that prints a text instead of running a command (Outcome::kAnswered), as --version does.
  void AddAnswer(const std::string& name, const std::function<std::string()>& text, const std::string& description);

 private:
  // Calls `chosen` with the index in `words` of the given word.
  CommandOption AddWord(const std::string& name, const std::vector<std::string>& words,
                        const std::function<void(size_t chosen)>& chosen, const std::string& description);

  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& description);
  ~CommandLine();

  enum class Outcome {
    kRan,       // the chosen command has run
    kAnswered,  // --help, --version: the text is on standard output
    kRefused,   // bad usage: "hadal COMMAND: …" is in `errors`, with the nearest name for a misspelt one
  };

  Command program();
  std::string Help() const;
  // Names of the program's direct subcommands, in the order they were added.
  std::vector<std::string> CommandNames() const;

  // Sets the variables of the given options, then runs the chosen command. Throws only what that command throws.
  Outcome Run(int argc, const char* const* argv, std::ostream& errors);
  // As above, with errors on standard error; `arguments` do not include the program's name.
  Outcome Run(const std::vector<std::string>& arguments);

 private:
  std::unique_ptr<CLI::App> app_;
};

template <typename Enum, typename Value>
CommandOption Command::AddChoice(const std::string& name, Value& value, const std::string& description,
                                 const std::vector<std::pair<std::string, Enum>>& choices) {
  std::vector<std::string> words;
  words.reserve(choices.size());
  for (const auto& choice : choices) words.push_back(choice.first);
  return AddWord(
      name, words, [&value, choices](size_t chosen) { value = choices[chosen].second; }, description);
}

}  // namespace hadal
