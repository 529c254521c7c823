#include "contract/padding.h"

#include <algorithm>

namespace kvlift {

bool ExcludesPadding(const Manifest& manifest) {
  return std::any_of(manifest.preconditions.begin(), manifest.preconditions.end(),
                     [](const Precondition& p) { return p.code == "KV236" || p.code == "KV248"; });
}

const Assumption* PaddingExcluded(const Assumptions& ledger) {
  const auto& all = ledger.all();
  const auto found = std::find_if(all.begin(), all.end(), [](const Assumption& a) {
    return a.kind == AssumptionKind::kPadding && a.subject.empty() &&
           a.source != AssumptionSource::kManifest;
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace kvlift
