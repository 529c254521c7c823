#include "verify/report/alias_claim.h"

#include <algorithm>
#include <map>

#include "exec/session/program_impl.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift {

std::vector<AliasCertificate> CertifyAliases(const Manifest& relation,
                                             const exec::Program& program) {
  const exec::Plan& plan = program.impl().plan;
  const Graph& graph = program.graph();
  std::map<std::string, size_t> place;  // in the schedule, by node name
  for (size_t k = 0; k < plan.steps.size(); ++k) place[graph.NodeName(plan.steps[k].node)] = k;
  std::vector<AliasCertificate> certificates;
  for (const ManifestCache& cache : relation.caches) {
    for (const exec::PairPlan& pair : plan.pairs) {
      if (pair.decision.pair.input != cache.input) continue;
      AliasCertificate c;
      c.cache = cache.id;
      c.claim = cache.alias;
      c.safe = pair.decision.aliased;
      c.reason = pair.decision.reason;
      c.readers = pair.decision.readers;
      if (pair.writer != kNoNode) c.writer = graph.NodeName(pair.writer);
      const auto writer = place.find(c.writer);
      for (const std::string& reader : c.readers) {
        const auto at = place.find(reader);
        if (!c.safe || at == place.end() || writer == place.end()) continue;
        c.order.push_back(fmt::format("{} (step {}) before {} (step {})", reader, at->second,
                                      c.writer, writer->second));
      }
      certificates.push_back(std::move(c));
    }
  }
  return certificates;
}

std::string FalseAliasClaim(const Manifest& relation, const exec::Program& program) {
  for (const ManifestCache& cache : relation.caches) {
    for (const exec::AliasDecision& decision : program.aliasing()) {
      if (decision.pair.input != cache.input || decision.aliased ||
          cache.alias != CacheAlias::kSafe) {
        continue;
      }
      return fmt::format("KV430 the relation says that {} may be updated in place, but {}",
                         cache.input, decision.reason);
    }
  }
  return {};
}

size_t AliasedCaches(const exec::Program& program) {
  const exec::Plan& plan = program.impl().plan;
  const bool poisons = program.options().alias == exec::AliasMode::kPoison;
  size_t caches = 0;
  for (const exec::AliasDecision& decision : program.aliasing()) caches += decision.aliased ? 1 : 0;
  if (!poisons) return caches;
  return static_cast<size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(), [&](const exec::StepPlan& step) {
        if (!step.poisons) return false;
        const int32_t type = program.graph().type(plan.pairs[step.writes_pair].past).elem_type;
        return IsFloatType(type) && ElementBits(type) > 8;
      }));
}

}  // namespace kvlift
