#include "contract/manifest_entries.h"

#include <utility>

#include "contract/words.h"

namespace kvlift {

InputAs AsOf(const ManifestInput& input) {
  return std::visit([](const auto& as) { return as.kAs; }, input.as);
}

OutputAs AsOf(const ManifestOutput& output) {
  return std::visit([](const auto& as) { return as.kAs; }, output.as);
}

const ControlInput* AsControl(const ManifestInput& input) {
  return std::get_if<ControlInput>(&input.as);
}

const CacheInput* AsCache(const ManifestInput& input) { return std::get_if<CacheInput>(&input.as); }

const PaddedInput* AsPadded(const ManifestInput& input) {
  return std::get_if<PaddedInput>(&input.as);
}

const CacheOutput* AsCache(const ManifestOutput& output) {
  return std::get_if<CacheOutput>(&output.as);
}

bool IsCache(const ManifestInput& input) { return AsCache(input) != nullptr; }

bool IsCache(const ManifestOutput& output) { return AsCache(output) != nullptr; }

bool HasSourceInput(const ManifestInput& input) {
  return !IsCache(input) && AsControl(input) == nullptr;
}

bool IsFedToBoth(const ManifestInput& input) {
  return std::holds_alternative<SameInput>(input.as) ||
         std::holds_alternative<RenamedInput>(input.as);
}

bool IsControl(const ManifestInput& input, ControlValue value) {
  const ControlInput* control = AsControl(input);
  return control != nullptr && control->value == value;
}

const std::string& NameInSource(const ManifestInput& input) {
  if (const auto* renamed = std::get_if<RenamedInput>(&input.as)) return renamed->source;
  const PaddedInput* padded = AsPadded(input);
  return padded != nullptr && !padded->source.empty() ? padded->source : input.name;
}

const std::string& NameInSource(const ManifestOutput& output) {
  const auto* renamed = std::get_if<RenamedOutput>(&output.as);
  return renamed != nullptr ? renamed->source : output.name;
}

std::optional<AllElements> AllOf(const DroppedInput& dropped) {
  const auto* all = std::get_if<AllElements>(&dropped.given);
  return all != nullptr ? std::optional(*all) : std::nullopt;
}

bool IsGiven(const DroppedInput& dropped, DroppedValue value) {
  const auto* given = std::get_if<DroppedValue>(&dropped.given);
  return given != nullptr && *given == value;
}

std::string GivenText(const DroppedInput& dropped) {
  if (const auto* text = std::get_if<std::string>(&dropped.given)) return *text;
  if (const auto all = AllOf(dropped)) return std::string(WordOf(*all));
  return std::string(WordOf(std::get<DroppedValue>(dropped.given)));
}

DroppedInput MakeDropped(std::string name, std::string text) {
  if (const auto all = ReadWord<AllElements>(text)) return {std::move(name), *all};
  if (const auto value = ReadWord<DroppedValue>(text)) return {std::move(name), *value};
  return {std::move(name), std::move(text)};
}

}  // namespace kvlift
