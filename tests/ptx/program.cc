#include "tests/ptx/program.h"

#include <algorithm>
#include <bit>
#include <regex>
#include <sstream>

#include "tests/ptx/memory.h"

namespace hadal::ptx {
namespace {

const std::string kSpace = " \t\n";

std::string Trimmed(const std::string& s) {
  const size_t first = s.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : s.substr(first, s.find_last_not_of(kSpace) - first + 1);
}

int64_t Aligned(int64_t offset, int64_t to) { return (offset + to - 1) / to * to; }

// Parses one kernel.
class Parser {
 public:
  Parser(std::string name, const std::string& text) : text_(text) {
    kernel_.name = std::move(name);
    kernel_.special.fill(-1);
  }

  Kernel Parse() {
    const size_t body = text_.find("\n{");
    Declarations(text_.substr(0, body), R"(\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z](\d+)\s+(\w+)(?:\[(\d+)\])?)", true);
    Declarations(text_, R"(\.shared\s+\.align\s+(\d+)\s+\.b(8)\s+(\w+)\[(\d+)\])", false);
    size_t at = body + 2;
    for (size_t end; (end = text_.find_first_of(";:", at)) != std::string::npos; at = end + 1) {
      const std::string statement = Trimmed(text_.substr(at, end - at));
      if (text_[end] == ':') {
        labels_[statement] = static_cast<int>(kernel_.code.size());
      } else {
        Statement(statement);
      }
    }
    for (const auto& [instruction, label] : branches_) kernel_.code[instruction].target = labels_.at(label);
    return std::move(kernel_);
  }

 private:
  void Declarations(const std::string& text, const char* pattern, bool parameters) {
    const std::regex expression(pattern);
    int64_t& end = parameters ? kernel_.parameter_bytes : kernel_.shared_bytes;
    for (std::sregex_iterator i(text.begin(), text.end(), expression), none; i != none; ++i) {
      const int64_t element = std::stoll((*i)[2]) / 8;
      const int64_t bytes = (*i)[4].matched ? std::stoll((*i)[4]) : element;
      const int64_t start = Aligned(end, (*i)[1].matched ? std::stoll((*i)[1]) : element);
      symbols_[(*i)[3]] = start;
      if (parameters) kernel_.parameters.emplace_back(start, bytes);
      end = start + bytes;
    }
  }

  void Statement(const std::string& statement) {
    if (statement.starts_with(".pragma \"used_bytes_mask ")) used_ = std::stoul(statement.substr(25));
    if (statement.starts_with(".pragma") || statement.starts_with(".reg") || statement.starts_with(".shared")) return;
    Instruction instruction{.used = std::exchange(used_, kAllLanes), .text = statement};
    size_t at = 0;
    if (statement[0] == '@') {
      instruction.negated = statement[1] == '!';
      at = statement.find_first_of(kSpace);
      instruction.predicate =
          Register(statement.substr(instruction.negated ? 2 : 1, at - (instruction.negated ? 2 : 1)));
      at = statement.find_first_not_of(kSpace, at);
    }
    const size_t end = std::min(statement.find_first_of(kSpace, at), statement.size());
    opcode_ = statement.substr(at, end - at);
    const auto operation = Operations().find(opcode_);
    if (operation == Operations().end()) throw Fault("the interpreter does not know \"" + statement + "\"");
    instruction.operation = operation->second;
    const std::string operands = Trimmed(statement.substr(end));
    if (instruction.operation.kind == Kind::kBranch) {
      branches_.emplace_back(kernel_.code.size(), operands);
    } else if (instruction.operation.kind != Kind::kBarrier) {
      Operands(operands, instruction);
    }
    kernel_.code.push_back(std::move(instruction));
  }

  void Operands(const std::string& operands, Instruction& instruction) {
    static const std::string kSeparators = "{}[]|,+ \t\n";
    int count = 0;
    for (size_t at = operands.find_first_not_of(kSeparators); at != std::string::npos;) {
      const size_t end = std::min(operands.find_first_of(kSeparators, at), operands.size());
      const std::string token = operands.substr(at, end - at);
      if (at > 0 && operands[at - 1] == '+') {
        instruction.offset = std::stoll(token);
      } else {
        instruction.operands.at(count++) = Operand(token);
      }
      at = operands.find_first_not_of(kSeparators, end);
    }
  }

  int Operand(const std::string& token) {
    if (token[0] == '%') return Register(token);
    if (const auto symbol = symbols_.find(token); symbol != symbols_.end()) return Constant(symbol->second);
    if (token.starts_with("0f") || token.starts_with("0d")) return Constant(std::stoull(token.substr(2), nullptr, 16));
    if (token.find_first_not_of("-0123456789") != std::string::npos) throw Fault("what is " + token + "?");
    const int64_t value = token[0] == '-' ? std::stoll(token) : static_cast<int64_t>(std::stoull(token));
    return Constant(opcode_.ends_with(".pred") ? (value != 0 ? kAllLanes : 0) : value);
  }

  int Constant(uint64_t value) {
    const auto [at, is_new] = constants_.try_emplace(value, kernel_.registers);
    if (is_new) kernel_.constants[kernel_.registers++] = value;
    return at->second;
  }

  int Register(const std::string& name) {
    const auto [at, is_new] = registers_.try_emplace(name, kernel_.registers);
    if (is_new) ++kernel_.registers;
    static const std::array<std::string, 5> kSpecial = {"%tid.x", "%ntid.x", "%ctaid.x", "%ctaid.y", "%nctaid.x"};
    const auto special = std::find(kSpecial.begin(), kSpecial.end(), name);
    if (special != kSpecial.end()) {
      kernel_.special[special - kSpecial.begin()] = at->second;
    } else if (name.find('.') != std::string::npos) {
      throw Fault("the interpreter does not know " + name);
    }
    return at->second;
  }

  const std::string& text_;
  Kernel kernel_;
  std::string opcode_;  // of the current statement
  uint32_t used_ = kAllLanes;
  std::map<std::string, int> labels_, registers_;
  std::map<std::string, int64_t> symbols_;
  std::map<uint64_t, int> constants_;
  std::vector<std::pair<size_t, std::string>> branches_;
};

// Returns `text` without comments and source lines.
std::string CodeOnly(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("\t.loc")) result += line.substr(0, line.find("//")) + "\n";
  }
  return result;
}

}  // namespace

// An anonymous namespace is <length>_GLOBAL__N__<hash>_<file>_<hash>_<process>; the file stays.
std::string StableName(const std::string& mangled) {
  const size_t start = mangled.find("_GLOBAL__N__");
  if (start == std::string::npos) return mangled;
  const size_t digits = mangled.find_last_not_of("0123456789", start - 1) + 1;
  const size_t end = start + std::stoull(mangled.substr(digits, start - digits));
  const std::string name = mangled.substr(start, end - start), suffix = "_cu_";
  const size_t file = name.find_first_of("_", sizeof("_GLOBAL__N__")) + 1;
  return mangled.substr(0, digits) + name.substr(file, name.find(suffix) - file) + "." + mangled.substr(end);
}

Program::Program(const std::string& text) {
  const std::string code = CodeOnly(text);
  const std::string entry = ".entry ";
  for (size_t at = code.find(entry); at != std::string::npos;) {
    const size_t name = at + entry.size(), end = code.find("\n}", at);
    texts_[StableName(code.substr(name, code.find('(', name) - name))] = code.substr(at, end - at);
    at = code.find(entry, end);
  }
}

const Kernel& Program::Find(const std::string& name) {
  if (const auto known = kernels_.find(name); known != kernels_.end()) return known->second;
  const auto text = texts_.find(name);
  if (text == texts_.end()) throw Fault("no PTX for " + name);
  return kernels_.emplace(name, Parser(name, text->second).Parse()).first->second;
}

std::vector<std::string> Program::names() const {
  std::vector<std::string> names;
  for (const auto& [name, text] : texts_) names.push_back(name);
  return names;
}

}  // namespace hadal::ptx
