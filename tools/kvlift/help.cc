#include "kvlift/help.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "report/text/text_width.h"

namespace kvlift::cli {
namespace {

constexpr int kWidth = 80, kNames = 26;

struct Example {
  std::string_view command, text;
};

// tests/cli/help_test.py runs all examples, in this order, in a folder that has model.onnx,
// models/model.onnx, and static.onnx, which takes the valid length as an input.
constexpr auto kExamples = std::to_array<Example>({
    {"inspect", "kvlift inspect model.onnx"},
    {"convert", "kvlift convert model.onnx -o out.onnx --verify --report out.html"},
    {"check",
     "kvlift check out.onnx --target ort\n"
     "kvlift check out.onnx --format sarif > check.sarif"},
    {"verify", "kvlift verify model.onnx out.onnx --save-failure smallest"},
    {"record", "kvlift record model.onnx out.onnx -o record --lengths 16,128"},
    {"run", "kvlift run model.onnx --inputs step --expect step"},
    {"bench", "kvlift bench out.onnx --context 16,512 --repetitions 3"},
    {"report", "kvlift report model.onnx out.onnx -o report.html"},
    {"diff", "kvlift diff model.onnx model.onnx"},
    {"explain",
     "kvlift explain KV205\n"
     "kvlift explain model.onnx --node /model/layers.0/self_attn/Softmax"},
    {"emit-loop", "kvlift emit-loop out.onnx --lang python-ort -o loop.py"},
    {"emit-maintenance", "kvlift emit-maintenance out.onnx -o moves.onnx"},
    {"metadata", "kvlift metadata static.onnx -o inference_metadata.yaml"},
    {"lower", "kvlift lower out.onnx -o older.onnx --to decomposed"},
    {"reduce", "kvlift reduce model.onnx -o small -- --quantize-cache int8:7"},
    {"fleet",
     "kvlift fleet convert models -o results --jobs 2 --timeout 600 -- --target ort\n"
     "kvlift fleet verify models -o results --resume"},
    {"completion", "kvlift completion bash > kvlift.bash"},
    {"man", "kvlift man > kvlift.1"},
    {"version", "kvlift version"},
});

// Returns the name of an option's value: LEN for "--max-seq-len".
std::string ValueName(const CLI::Option* option) {
  if (option->get_type_name().empty()) return {};
  std::string name = option->get_lnames().empty() ? "VALUE" : option->get_lnames()[0];
  name = name.substr(name.rfind('-') + 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return option->get_expected_min() == 0 ? "[=" + name + "]" : " " + name;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNames); }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text;
    for (const std::string& line : WrapText(app->get_description(), kWidth)) text += line + "\n";
    text += make_usage(app, std::move(name)) + make_positionals(app) + Groups(app, mode);
    // Commands are never expanded: each has a help of its own.
    text += make_subcommands(app, CLI::AppFormatMode::Normal);
    return text + "\n" + make_footer(app);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = is_positional ? option->get_name(true) : Names(option);
    std::string what = option->get_description();
    const std::string choices = absl::StrJoin(ChoicesOf(*option), ", ");
    // Choices that the description already lists are not repeated.
    if (!choices.empty() && what.find(':') == std::string::npos) what += ": " + choices;
    std::string text = "  " + name;
    if (text.size() + 1 > kNames) {
      text += "\n" + std::string(kNames, ' ');
    } else {
      text.resize(kNames, ' ');
    }
    bool first = true;
    for (const std::string& line : WrapText(what, kWidth - kNames)) {
      if (!first) text += "\n" + std::string(kNames, ' ');
      text += line;
      first = false;
    }
    return text + "\n";
  }

 private:
  // Lists options by group; rarely used groups only if all options are asked for.
  std::string Groups(const CLI::App* app, CLI::AppFormatMode mode) const {
    std::string text;
    for (const std::string& group : app->get_groups()) {
      const auto options = app->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      });
      if (group.empty() || options.empty()) continue;
      const bool rare = group == kReadingGroup || group == kLimitsGroup || group == kOperatorsGroup;
      if (rare && mode != CLI::AppFormatMode::All) continue;
      text += make_group(group, false, options);
    }
    return text;
  }

  // Returns "-o, --output OUTPUT"; for a flag that turns something off, only its long name.
  static std::string Names(const CLI::Option* option) {
    std::string text;
    for (const std::string& name : option->get_snames()) text += "-" + name + ", ";
    for (const std::string& name : option->get_lnames()) text += "--" + name;
    return text + ValueName(option);
  }
};

}  // namespace

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
}

std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter() {
  return std::make_shared<HelpFormatter>();
}

std::string_view ExampleLinesOf(std::string_view command) {
  for (const Example& example : kExamples) {
    if (example.command == command) return example.text;
  }
  return {};
}

std::string ExamplesOf(std::string_view command) {
  const std::string_view lines = ExampleLinesOf(command);
  if (lines.empty()) return {};
  std::string text = "Example:\n  ";
  for (const char c : lines) text += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return text + "\n";
}

}  // namespace kvlift::cli
