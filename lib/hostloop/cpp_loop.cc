#include "base/escape.h"
#include "fmt/format.h"
#include "hostloop/loop_facts.h"
#include "hostloop/template.h"

namespace kvlift {
namespace {

constexpr char kCppTemplate[] =
#include "loop_cpp.inc"
    ;

std::string String(std::string_view text) {
  const bool zero = text.find('\0') != std::string_view::npos;
  return zero ? fmt::format("std::string({}, {})", CppLiteral(text), text.size())
              : CppLiteral(text);
}

// Returns axes as the loop's Axis is initialised: {{'B', 4}, {0, 2}}.
std::string CppAxes(const std::vector<LoopAxis>& axes) {
  std::string text = "{";
  for (const LoopAxis& axis : axes) {
    const std::string letter = axis.letter == '\0' ? "0" : fmt::format("'{}'", axis.letter);
    text += fmt::format("{}{{{}, {}}}", &axis == axes.data() ? "" : ", ", letter, axis.value);
  }
  return text + "}";
}

std::string CppCaches(const LoopFacts& facts) {
  std::string text = "const std::vector<Cache> kCaches = {\n";
  for (const LoopCache& cache : facts.caches) {
    text += fmt::format("    {{{}, {}, {}, {}, {}}},\n", String(cache.past), String(cache.present),
                        cache.type, CppAxes(cache.axes), cache.in_place);
  }
  return text + "};\n";
}

std::string CppInputs(const LoopFacts& facts) {
  std::string text = "const std::vector<Input> kInputs = {\n";
  for (const LoopInput& input : facts.inputs) {
    text += fmt::format("    {{{}, \"{}\", {}, {}, {}}},", String(input.name), input.meaning,
                        input.type, CppAxes(input.axes), input.added);
    if (!input.instead.empty()) text += fmt::format("  // or: {}", fmt::join(input.instead, ", "));
    text += "\n";
  }
  return text + "};\n";
}

}  // namespace

std::string CppLoop(const LoopFacts& facts) {
  std::string text;
  const auto number = [&](std::string_view name, const std::optional<int64_t>& value,
                          std::string_view what) {
    text += fmt::format("constexpr int64_t {} = {};  // {}\n", name, value.value_or(0), what);
  };
  const auto truth = [&](std::string_view name, bool value, std::string_view what) {
    text += fmt::format("constexpr bool {} = {};  // {}\n", name, value, what);
  };
  text += fmt::format("const std::string kModel = {};\n", String(facts.model));
  number("kBatch", facts.batch, "B, where the model fixes it, else 0");
  number("kTokens", facts.tokens, "S, where the model fixes it, else 0");
  number("kCapacity", facts.capacity, "M, where the model fixes it, else 0");
  truth("kUniform", facts.uniform, "all sequences hold the same number of tokens");
  truth("kCircular", facts.circular, "slots are used again from the first on");
  number("kNewWithPast", facts.new_with_past, "most tokens of a step that has a past; 0: any");
  number("kChunk", facts.chunk, "most tokens of any step; 0: any");
  text += fmt::format("const std::string kLogits = {};\n", String(facts.logits));
  text += CppCaches(facts) + CppInputs(facts);
  return internal::WithFacts(kCppTemplate, text);
}

}  // namespace kvlift
