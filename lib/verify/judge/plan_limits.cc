#include "verify/judge/plan_limits.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "contract/padding.h"

namespace kvlift {
namespace {

constexpr int64_t kDefaultCapacity = 16;

// Returns the bytes of one token of one sequence in a cache, at 4 bytes per number.
int64_t RowBytes(const ManifestCache& cache, const TensorType& type) {
  int64_t bytes = 4;
  for (size_t k = 0; type.shape && k < type.shape->size() && k < cache.layout.size(); ++k) {
    if (cache.layout[k] == 'B' || cache.layout[k] == 'S') continue;
    bytes *= (*type.shape)[k].value.value_or(1);
  }
  return bytes;
}

// A ring of fixed size bounds the new tokens of a step, and the capacity of the other plans,
// which must not wrap around.
void LimitByRing(const ManifestCache& cache, int64_t slots, PlanLimits* limits) {
  const int64_t most = std::max<int64_t>(1, slots - cache.ring->window);
  limits->most_tokens = std::min(limits->most_tokens.value_or(most), most);
  limits->capacity = std::min(limits->capacity, slots);
}

}  // namespace

void LimitByCaches(const Manifest& relation, const Graph& after, Driver* driver,
                   PlanLimits* limits) {
  limits->capacity = relation.capacity_value.value_or(kDefaultCapacity);
  limits->circular = relation.mode == BufferMode::kCircular;
  limits->all_rings = true;
  std::set<int64_t> rings;
  for (const ManifestCache& cache : relation.caches) {
    limits->growing = limits->growing && cache.source.growing;
    limits->circular = limits->circular && !cache.source.growing;
    const auto& type = after.type(after.Find(cache.input));
    std::optional<int64_t> slots;
    if (type.shape) slots = (*type.shape)[cache.axis].value;
    if (slots) driver->FixSlots(cache.id, *slots);
    if (cache.ring) {
      rings.insert(cache.ring->window);
      if (slots) LimitByRing(cache, *slots, limits);
      continue;
    }
    limits->all_rings = false;
    if (slots) {
      limits->capacity = limits->free_capacity ? *slots : std::min(limits->capacity, *slots);
      limits->free_capacity = false;
    }
    limits->row_bytes += RowBytes(cache, type);
  }
  limits->rings.assign(rings.begin(), rings.end());
  // If all caches are rings, a mask with a fixed number of columns bounds the tokens.
  for (const ManifestInput& input : relation.inputs) {
    const PaddedInput* padded = AsPadded(input);
    if (padded == nullptr) continue;
    const auto& type = after.type(after.Find(input.name));
    if (!type.shape || padded->axis < 0 || padded->axis >= std::ssize(*type.shape)) continue;
    const std::optional<int64_t> columns = (*type.shape)[padded->axis].value;
    if (!columns || !limits->all_rings) continue;
    limits->free_capacity = false;
    limits->capacity = *columns;
  }
}

void LimitBySource(const Manifest& relation, const Stimulus& stimulus, const SourceFacts& facts,
                   PlanLimits* limits) {
  limits->batch = stimulus.fixed_batch() ? stimulus.fixed_batch() : facts.batch;
  limits->batch_was_found = !stimulus.fixed_batch() && facts.batch.has_value();
  limits->tokens = stimulus.fixed_tokens();
  limits->prefill = facts.prefill;
  limits->causal = facts.causal;
  limits->tokens_with_past = relation.limits.new_tokens_with_past;
  if (!facts.chunks) limits->tokens_with_past = 1;
  limits->kept = facts.kept;
  limits->uniform = relation.uniform || HasGrowingCaches(relation);
  // Dropped masks are left out: they are all ones by precondition.
  limits->mask =
      std::any_of(relation.inputs.begin(), relation.inputs.end(),
                  [&](const ManifestInput& i) { return stimulus.IsMask(NameInSource(i)); });
  for (const auto& entry : stimulus.interface().inputs) {
    limits->reorders = limits->reorders || entry.second.reading().meaning == Meaning::kBeamIndices;
  }
  if (ExcludesPadding(relation)) limits->pads = false;
}

bool LimitByProof(const Assumptions& ledger, PlanLimits* limits) {
  for (const Assumption& given : ledger.all()) {
    // An entry about one attention excludes padding that hides all keys of a token.
    if (given.kind == AssumptionKind::kPadding && !given.subject.empty()) {
      limits->shows_a_key = false;
    }
  }
  const bool excluded = PaddingExcluded(ledger) != nullptr;
  if (excluded) limits->pads = false;
  return excluded;
}

}  // namespace kvlift
