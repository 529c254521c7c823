#include <algorithm>

#include "base/escape.h"
#include "fmt/format.h"
#include "hostloop/loop_facts.h"
#include "hostloop/template.h"
#include "ir/types.h"

namespace kvlift {
namespace {

constexpr char kPythonTemplate[] =
#include "loop_py.inc"
    ;

constexpr char kSpeculative[] =
#include "speculative_py.inc"
    ;

std::string OrNone(const std::optional<int64_t>& number) {
  return number ? std::to_string(*number) : "None";
}

std::string Bool(bool value) { return value ? "True" : "False"; }

// Returns axes as a tuple, such as ("B", 4, "M", 64).
std::string PythonAxes(const std::vector<LoopAxis>& axes) {
  std::string text = "(";
  for (const LoopAxis& axis : axes) {
    if (axis.letter == '\0') {
      text += std::to_string(axis.value);
    } else if (axis.letter == 'B' && axis.value != 1) {
      text += fmt::format("(\"B\", {})", axis.value);
    } else {
      text += fmt::format("\"{}\"", axis.letter);
    }
    text += axes.size() == 1 ? "," : &axis == &axes.back() ? "" : ", ";
  }
  return text + ")";
}

std::string TypeOf(int32_t type) {
  const std::string name = ElementTypeName(type);
  return "np." + (name == "bool" ? "bool_" : name);
}

std::string PythonInputs(const LoopFacts& facts) {
  std::string text = "INPUTS = {\n";
  for (const LoopInput& input : facts.inputs) {
    std::string line =
        fmt::format("    {}: Input(\"{}\", {}, {}{}),", PythonLiteral(input.name), input.meaning,
                    TypeOf(input.type), PythonAxes(input.axes), input.added ? ", added=True" : "");
    if (!input.instead.empty()) line += fmt::format("  # or: {}", fmt::join(input.instead, ", "));
    text += line + "\n";
  }
  return text + "}\n";
}

std::string PythonCaches(const LoopFacts& facts) {
  std::string text = "CACHES = (\n";
  for (const LoopCache& cache : facts.caches) {
    text += fmt::format("    Cache({}, {}, {}, {}, {}),\n", PythonLiteral(cache.past),
                        PythonLiteral(cache.present), cache.type, PythonAxes(cache.axes),
                        Bool(cache.in_place));
  }
  return text + ")\n";
}

}  // namespace

std::string PythonLoop(const LoopFacts& facts) {
  std::string text;
  const auto fact = [&](std::string_view name, const std::string& value, std::string_view what) {
    text += fmt::format("{} = {}  # {}\n", name, value, what);
  };
  text += fmt::format("MODEL = {}\n", PythonLiteral(facts.model));
  fact("BATCH", OrNone(facts.batch), "B, where the model fixes it");
  fact("TOKENS", OrNone(facts.tokens), "S, where the model fixes it");
  fact("CAPACITY", OrNone(facts.capacity), "M, where the model fixes it");
  fact("UNIFORM", Bool(facts.uniform), "all sequences hold the same number of tokens");
  fact("CIRCULAR", Bool(facts.circular), "slots are used again from the first on");
  fact("NEW_WITH_PAST", OrNone(facts.new_with_past), "most tokens of a step that has a past");
  fact("CHUNK", OrNone(facts.chunk), "most tokens of any step");
  text += fmt::format("LOGITS = {}\n", PythonLiteral(facts.logits));
  text += PythonCaches(facts) + PythonInputs(facts);
  return internal::WithFacts(kPythonTemplate, text);
}

std::string SpeculativeLoop(const LoopFacts& facts) {
  const std::string loop = PythonLoop(facts);
  const std::string text = kSpeculative;
  // Replaces the loop's main(), which is the last function in both files.
  return loop.substr(0, loop.find("def main():")) + text.substr(text.find("class "));
}

std::string WhyNotSpeculative(const LoopFacts& facts) {
  const auto count = [&](std::string_view meaning) {
    return std::count_if(facts.inputs.begin(), facts.inputs.end(),
                         [&](const LoopInput& input) { return input.meaning == meaning; });
  };
  if (count("tree") != 1) return "it has no input for trees of tokens: convert with --tree-mask";
  if (facts.tokens || facts.new_with_past) return "it takes a fixed number of new tokens";
  // One of them is the write index.
  if (count("positions") != 2) return "it has no input for the positions of tokens, or several";
  return "";
}

}  // namespace kvlift
