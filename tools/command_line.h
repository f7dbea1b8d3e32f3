// The command line: a program, its commands, their options and the variables that these set.
//
// CLI11 does the work, and command_line.cc alone includes it: it is all headers, and each file that includes it
// compiles all of it, for five seconds.
// Command and CommandOption are names for what a CommandLine owns: small, copied freely, valid as long as it. A
// variable that an option sets must live until Run has returned; it keeps its value where the option is not given.
// An option is refused twice on one command line unless it sets a vector.
// Thread safety: none; one thread builds a command line and runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
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
  // The help names the value that the variable has now.
  CommandOption ShowDefault();
  // What the help calls the value, in place of INT, FLOAT or TEXT.
  CommandOption ValueName(const std::string& name);

  // What is allowed, both ends included; of a vector each value.
  CommandOption InRange(int least, int most);
  CommandOption InRange(int64_t least, int64_t most);
  CommandOption InRange(double least, double most);
  CommandOption OneOf(const std::vector<std::string>& words);
  // `fault` says what is wrong with a value, or nothing.
  CommandOption Checked(const std::function<std::string(const std::string& value)>& fault);

  // May only be given together with `other`, or only without it.
  CommandOption Needs(CommandOption other);
  CommandOption Excludes(CommandOption other);

  // Of a vector: one value each time the option is given, so that the next word is an argument again.
  CommandOption OneValueEach();
  // Of a vector: several values in one word, between them `separator`.
  CommandOption SplitAt(char separator);

 private:
  CLI::Option* option_;
};

// The program itself, or one of its commands.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command AddCommand(const std::string& name, const std::string& description);
  // REQUIRES: one that was added.
  Command FindCommand(const std::string& name);
  // Running the command without one of its own commands is refused.
  void RequireCommand();
  // What the command does, called by CommandLine::Run.
  void Runs(const std::function<void()>& run);

  // `name` as "--name", "-n,--name", or "NAME" for an argument that stands by its place.
  // T: int, int64_t, uint64_t (a negative number is refused), double, std::string, std::optional of int or double,
  // std::vector of int, int64_t or std::string.
  template <typename T>
  CommandOption AddOption(const std::string& name, T& value, const std::string& description);
  // The same where a value goes elsewhere than into one variable.  T: int64_t, std::string.
  template <typename T>
  CommandOption AddSetter(const std::string& name, const std::function<void(const T& value)>& set,
                          const std::string& description);
  // One of `choices` by name; an unknown one is refused with the nearest.
  // REQUIRES: an Enum can be assigned to `value`.
  template <typename Enum, typename Value>
  CommandOption AddChoice(const std::string& name, Value& value, const std::string& description,
                          const std::vector<std::pair<std::string, Enum>>& choices);

  CommandOption AddFlag(const std::string& name, bool& given, const std::string& description);
  CommandOption AddFlag(const std::string& name, const std::function<void()>& given, const std::string& description);
  // A flag that prints a text and ends the program, as --version does.
  void AddAnswer(const std::string& name, const std::function<std::string()>& text, const std::string& description);

 private:
  // `chosen` gets the place in `words` of the one that was given.
  CommandOption AddWord(const std::string& name, const std::vector<std::string>& words,
                        const std::function<void(size_t chosen)>& chosen, const std::string& description);

  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& description);
  ~CommandLine();

  enum class Outcome {
    kRan,       // the chosen command
    kAnswered,  // a question (--help, --version): its answer is on standard output
    kRefused,   // what is wrong is on standard error
  };

  Command program();
  std::string Help() const;
  // Of the program's own commands, in the order in which they were added.
  std::vector<std::string> CommandNames() const;

  // Sets the variables of the options that are given, then runs the chosen command.
  // Throws only what that command throws.
  Outcome Run(int argc, const char* const* argv);
  // The same without the program's name in front.
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
