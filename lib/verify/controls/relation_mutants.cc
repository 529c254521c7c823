#include "verify/controls/relation_mutants.h"

#include <algorithm>
#include <utility>

namespace kvlift {

namespace {

bool HasOneElement(const Graph& after, const ManifestCache& cache, size_t axis) {
  const ValueId v = after.Find(cache.input);
  if (v == kNoValue || !after.type(v).shape || axis >= after.type(v).shape->size()) return false;
  return (*after.type(v).shape)[axis].value == 1;
}

}  // namespace

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
    // Steps of one token do not tell rows from the axis of a single head.
    const std::string& layout = caches.back().layout;
    const size_t heads = layout.find('N'), rows = layout.find('S');
    const bool of_heads = heads != std::string::npos && !HasOneElement(after, caches.back(), heads);
    const size_t other = of_heads ? heads : layout.find('D');
    if (other != std::string::npos && rows != std::string::npos) {
      add(of_heads ? "heads and rows of a cache exchanged"
                   : "elements and rows of a cache exchanged",
          [&](Manifest* m) {
            std::swap(m->caches.back().layout[other], m->caches.back().layout[rows]);
            m->caches.back().axis = static_cast<int64_t>(other);
          });
    }
  }
  if (!relation.outputs.empty()) {
    add("an output without a place", [](Manifest* m) { m->outputs.pop_back(); });
  }
  return mutants;
}

}  // namespace kvlift
