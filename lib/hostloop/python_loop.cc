#include "base/escape.h"
#include "fmt/format.h"
#include "hostloop/loop_facts.h"
#include "hostloop/template.h"
#include "ir/types.h"

namespace kvlift {
namespace {

constexpr char kTemplate[] =
#include "loop_py.inc"
    ;

std::string OrNone(const std::optional<int64_t>& number) {
  return number ? std::to_string(*number) : "None";
}

std::string Bool(bool value) { return value ? "True" : "False"; }

// A tuple: ("B", 4, "M", 64).
std::string Axes(const std::vector<LoopAxis>& axes) {
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

std::string InputsOf(const LoopFacts& facts) {
  std::string text = "INPUTS = {\n";
  for (const LoopInput& input : facts.inputs) {
    std::string line =
        fmt::format("    {}: Input(\"{}\", {}, {}{}),", PythonLiteral(input.name), input.meaning,
                    TypeOf(input.type), Axes(input.axes), input.added ? ", added=True" : "");
    if (!input.instead.empty()) line += fmt::format("  # or: {}", fmt::join(input.instead, ", "));
    text += line + "\n";
  }
  return text + "}\n";
}

std::string CachesOf(const LoopFacts& facts) {
  std::string text = "CACHES = (\n";
  for (const LoopCache& cache : facts.caches) {
    text += fmt::format("    Cache({}, {}, {}, {}, {}),\n", PythonLiteral(cache.past),
                        PythonLiteral(cache.present), cache.type, Axes(cache.axes),
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
  text += fmt::format("LOGITS = {}\n", PythonLiteral(facts.logits));
  text += CachesOf(facts) + InputsOf(facts);
  return internal::WithFacts(kTemplate, text);
}

}  // namespace kvlift
