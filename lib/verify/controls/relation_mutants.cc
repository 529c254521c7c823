#include "verify/controls/relation_mutants.h"

#include <algorithm>
#include <utility>

namespace kvlift {

std::vector<RelationMutant> MakeRelationMutants(const Graph& after, const Manifest& relation) {
  std::vector<RelationMutant> mutants;
  const auto add = [&](const std::string& name, const auto& edit) {
    Manifest wrong = relation;
    edit(&wrong);
    mutants.push_back({name, std::move(wrong)});
  };
  for (size_t k = 0; k < relation.inputs.size(); ++k) {
    const ManifestInput& input = relation.inputs[k];
    const bool past = IsControl(input, ControlValue::kPastLength);
    if (past || IsControl(input, ControlValue::kTotalLength)) {
      add("control " + input.name + " is the other length", [&](Manifest* m) {
        std::get<ControlInput>(m->inputs[k].as).value =
            past ? ControlValue::kTotalLength : ControlValue::kPastLength;
      });
    }
  }
  // Swaps two caches of the same type and layout, which only their values tell apart.
  const auto& caches = relation.caches;
  for (size_t k = 1; k < caches.size(); ++k) {
    const ManifestCache &a = caches[k - 1], &b = caches[k];
    const auto type = [&](const ManifestCache& c) { return after.type(after.Find(c.input)); };
    if (!(type(a) == type(b)) || a.axis != b.axis || a.source.layout != b.source.layout) continue;
    if (a.input == b.input || a.output == b.output) continue;
    add("sources of two caches swapped",
        [&](Manifest* m) { std::swap(m->caches[k - 1].source, m->caches[k].source); });
    add("outputs of two caches swapped", [&](Manifest* m) {
      std::swap(m->caches[k - 1].output, m->caches[k].output);
      for (ManifestOutput& output : m->outputs) {
        auto* cache = std::get_if<CacheOutput>(&output.as);
        if (cache == nullptr) continue;
        if (cache->id == a.id) {
          cache->id = b.id;
        } else if (cache->id == b.id) {
          cache->id = a.id;
        }
      }
    });
    add("one buffer for two caches", [&](Manifest* m) { m->caches[k].input = a.input; });
    break;
  }
  if (!caches.empty()) {
    add("a cache of the source that does not exist",
        [](Manifest* m) { m->caches.back().source.input += ".mutant"; });
    const std::string layout = caches.back().layout;
    const size_t heads = layout.find('N'), rows = layout.find('S');
    if (heads != std::string::npos && rows != std::string::npos) {
      add("heads and rows of a cache exchanged", [&](Manifest* m) {
        std::swap(m->caches.back().layout[heads], m->caches.back().layout[rows]);
        m->caches.back().axis = static_cast<int64_t>(heads);
      });
    }
  }
  if (!relation.outputs.empty()) {
    add("an output without a place", [](Manifest* m) { m->outputs.pop_back(); });
  }
  return mutants;
}

}  // namespace kvlift
