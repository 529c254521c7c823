#include "rewrite/judge/plan_basis.h"

#include <algorithm>

namespace kvlift::internal {

PlanBasis::PlanBasis(const Analysis& analysis, const std::vector<PlannedCache>& planned,
                     const ResolvedOptions& resolved, const SharedExtents& shared, Scheme chosen)
    : a(analysis),
      caches(planned),
      options(resolved),
      extents(shared),
      graph(*analysis.graph),
      forms(*analysis.forms),
      pool(forms.pool()),
      derived(resolved.control == kvlift::Control::kDerived),
      uniform(derived || chosen != Scheme::kPerSequence),
      keep_unguarded(chosen == Scheme::kUniformKeepUnguarded),
      probe(forms) {
  for (const PlannedCache& cache : caches) {
    growing = growing || cache.grows();
    fifos = fifos || cache.fifo();
    rings = rings || cache.ring() != nullptr;
    if (const WindowRing* ring = cache.ring()) probe.BindDim(RingSymbol(ring->window), false);
  }
  probe.BindDim(KeysSymbol(), false);
  probe.BindDim(CapacitySymbol(), false);
  if (!growing && !fifos) return;
  probe.BindDim(PastSymbol(), !uniform);
  for (const auto& [input, axis] : extents.key_length_masks) {
    // Masks that the host pads to the capacity are cut, unless attention is given the whole buffer.
    const bool cut = !derived && !views() && prefix_read();
    probe.BindSource(input, cut ? std::vector<int>{axis} : std::vector<int>{});
  }
}

bool PlanBasis::IsKeyLengthMask(ValueId v) const {
  return std::any_of(extents.key_length_masks.begin(), extents.key_length_masks.end(),
                     [&](const auto& mask) { return mask.first == v; });
}

}  // namespace kvlift::internal
