#include "kvlift/usage.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/str_join.h"
#include "fmt/format.h"
#include "kvlift/help.h"
#include "report/text/suggest.h"

namespace kvlift::cli {
namespace {

// Returns the command that args[1] names, or null.
const CLI::App* CommandOf(const CLI::App& app, const std::vector<std::string>& args) {
  if (args.size() < 2) return nullptr;
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const auto found = std::find_if(commands.begin(), commands.end(), [&](const CLI::App* command) {
    return command->get_name() == args[1];
  });
  return found == commands.end() ? nullptr : *found;
}

bool IsFlag(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// Returns the word in front of ": " or " " at the start of an error of the parser, which is the
// name of an option or operand.
std::string NameIn(const std::string& text) { return text.substr(0, text.find_first_of(": ")); }

const CLI::Option* OptionOf(const CLI::App& command, const std::string& name) {
  return name.empty() ? nullptr : command.get_option_no_throw(name);
}

std::string OperandsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) names.push_back(option->get_name(true));
  }
  return names.empty() ? "no operands" : absl::StrJoin(names, " and ");
}

// Returns what is wrong where the command has too many words.
std::string Unexpected(const CLI::App& command, const std::vector<std::string>& args,
                       const std::string& otherwise) {
  const std::vector<std::string> extras = command.remaining();
  const auto is_extra = [&](const std::string& word) {
    return std::find(extras.begin(), extras.end(), word) != extras.end();
  };
  // An unknown flag is the cause of a value behind it that nothing takes.
  auto word = std::find_if(args.begin() + 2, args.end(),
                           [&](const std::string& arg) { return IsFlag(arg) && is_extra(arg); });
  if (word != args.end()) {
    return fmt::format("{} is no option of {}", word->substr(0, word->find('=')),
                       command.get_name());
  }
  word = std::find_if(args.begin() + 2, args.end(), is_extra);
  if (word == args.end()) return otherwise;
  return fmt::format("{} is one too many: {} takes {}", *word, command.get_name(),
                     OperandsOf(command));
}

// Returns what is missing: "model is required: The model to convert".
std::string Required(const CLI::App& command, const std::string& text) {
  const CLI::Option* option = OptionOf(command, NameIn(text));
  return option == nullptr ? text : fmt::format("{}: {}", text, option->get_description());
}

// Returns what is wrong with the number of values of an option or operand.
std::string Mismatch(const CLI::App& command, const std::string& text) {
  const std::string name = NameIn(text);
  const CLI::Option* option = OptionOf(command, name);
  if (option == nullptr) return text;
  if (text.find("missing") != std::string::npos) {
    const std::string choices = absl::StrJoin(ChoicesOf(*option), ", ");
    return fmt::format("{} needs a value: {}", name,
                       choices.empty() ? option->get_description() : choices);
  }
  if (option->get_expected_max() == 1) return name + " is given more than once";
  return fmt::format("{}: at most {} are taken: {}", name, option->get_expected_max(),
                     option->get_description());
}

// Returns what is wrong with a number, from "--threads: Value -1 not in range 0 to 1024"; nullopt
// for another text.
std::optional<std::string> OutOfRange(const std::string& text) {
  constexpr std::string_view kValue = ": Value ", kRange = " not in range ", kTo = " to ";
  const size_t value = text.find(kValue), range = text.rfind(kRange), to = text.rfind(kTo);
  if (value == std::string::npos || range == std::string::npos || to == std::string::npos ||
      range < value || to < range) {
    return std::nullopt;
  }
  const size_t number = value + kValue.size(), least = range + kRange.size();
  const std::string most = text.substr(to + kTo.size());
  const std::string upto =
      most == fmt::format("{}", std::numeric_limits<int64_t>::max()) ? "on" : "to " + most;
  return fmt::format("{}: needs a whole number from {} {}, found {}", text.substr(0, value),
                     text.substr(least, to - least), upto, text.substr(number, range - number));
}

// Returns what is wrong with a value: "--target: moon is none of spec, ort".
std::string WrongValue(const CLI::App& command, const std::string& text) {
  if (const auto range = OutOfRange(text)) return *range;
  const CLI::Option* option = OptionOf(command, NameIn(text));
  const std::vector<std::string> choices =
      option == nullptr ? std::vector<std::string>() : ChoicesOf(*option);
  const size_t end = text.rfind(" not in {");
  if (choices.empty() || end == std::string::npos) return text;
  return fmt::format("{} is none of {}", text.substr(0, end), absl::StrJoin(choices, ", "));
}

// Returns what is wrong with a value that is no number, from "Could not convert: --rtol = x".
std::string NoNumber(const std::string& text) {
  const size_t begin = text.find(": "), end = text.find(" = ");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return text;
  return fmt::format("{}: needs a number, found {}", text.substr(begin + 2, end - begin - 2),
                     text.substr(end + 3));
}

// Returns the value that args[k] gives an option, in the same word or in the next one; nullopt if
// args[k] is the last word and holds no value.
std::optional<std::string> ValueAt(const std::vector<std::string>& args, size_t k) {
  const size_t equals = args[k].find('=');
  if (equals != std::string::npos) return args[k].substr(equals + 1);
  if (k + 1 < args.size()) return args[k + 1];
  return std::nullopt;
}

// Returns the choice of the option at args[k] that its value may have meant; empty if the value is
// a choice or resembles none.
std::string ClosestChoice(const CLI::App& command, const std::vector<std::string>& args, size_t k) {
  const std::string word = args[k].substr(0, args[k].find('='));
  const CLI::Option* option = command.get_option_no_throw(word);
  const std::optional<std::string> value = ValueAt(args, k);
  if (option == nullptr || !value) return {};
  const std::vector<std::string> choices = ChoicesOf(*option);
  if (std::find(choices.begin(), choices.end(), *value) != choices.end()) return {};
  return ClosestWord(*value, choices);
}

}  // namespace

std::string UsageError(const CLI::App& app, const std::vector<std::string>& args,
                       const CLI::ParseError& error) {
  const CLI::App* command = CommandOf(app, args);
  if (command == nullptr) {
    if (args.size() < 2) return "a command is required";
    return IsFlag(args[1]) ? args[1] + ": a command is required in front of its options"
                           : args[1] + " is no command";
  }
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return Unexpected(*command, args, text);
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return Required(*command, text);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return Mismatch(*command, text);
  }
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) {
    return WrongValue(*command, text);
  }
  return dynamic_cast<const CLI::ConversionError*>(&error) != nullptr ? NoNumber(text) : text;
}

std::string MeantWord(const CLI::App& app, const std::vector<std::string>& args) {
  const CLI::App* command = CommandOf(app, args);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(sub->get_name());
    }
    return args.size() < 2 ? "" : ClosestWord(args[1], names);
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (size_t k = 2; k < args.size(); ++k) {
    if (args[k] == "--") break;  // options of another command follow
    if (args[k].rfind("--", 0) != 0) continue;
    const std::string word = args[k].substr(0, args[k].find('='));
    if (std::find(known.begin(), known.end(), word) == known.end()) return ClosestWord(word, known);
    if (std::string best = ClosestChoice(*command, args, k); !best.empty()) return best;
  }
  return {};
}

}  // namespace kvlift::cli
