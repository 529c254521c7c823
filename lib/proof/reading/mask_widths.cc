#include "proof/reading/mask_widths.h"

#include <algorithm>
#include <utility>

#include "proof/reading/read_attention.h"

namespace kvlift {
namespace {

// The indices of sequence and key in an AttentionReading.
constexpr int kSequences = 0, kKeys = 3;

bool ReadsGrowingCache(const GraphPair& pair, const Manifest& relation, sym::Expr e) {
  const std::vector<ValueId> sources = sym::SourcesOf(e);
  return std::any_of(
      relation.caches.begin(), relation.caches.end(), [&](const ManifestCache& cache) {
        const ValueId past = pair.Before(cache.source.input);
        return cache.source.growing && std::count(sources.begin(), sources.end(), past) > 0;
      });
}

}  // namespace

std::vector<MaskSizes> SizesOfMasks(const GraphPair& pair, const Manifest& relation,
                                    std::set<sym::DimSymbol> sizes) {
  const Graph& graph = pair.graph();
  sym::Pool& pool = pair.forms().pool();
  std::vector<MaskSizes> masks;
  for (NodeId n = 0; n < graph.num_nodes() && !sizes.empty(); ++n) {
    if (pair.IsInAfter(n) || graph.outputs(n).empty() || graph.outputs(n)[0] == kNoValue) continue;
    const AttentionReading reading = ReadAttention(pair.forms(), graph.outputs(n)[0]);
    if (!reading.why_not.empty() || !ReadsGrowingCache(pair, relation, reading.key)) continue;
    std::vector<sym::Expr> loads = sym::LoadsOf(reading.visible);
    for (sym::Expr added : reading.bias) {
      const std::vector<sym::Expr> more = sym::LoadsOf(added);
      loads.insert(loads.end(), more.begin(), more.end());
    }
    for (sym::Expr load : loads) {
      if (!graph.is_graph_input(load->source())) continue;
      const sym::Form form = pair.forms().Of(load->source());
      MaskSizes mask{graph.name(load->source())};
      for (size_t k = 0; k < load->args().size(); ++k) {
        if (load->args()[k] == pool.Index(kSequences)) mask.rows = form.shape[k];
        if (load->args()[k] == pool.Index(kKeys)) mask.columns = form.shape[k];
      }
      const bool is_named = mask.columns != nullptr && mask.columns->kind() == sym::Kind::kDim;
      if (is_named && sizes.erase(mask.columns->dim()) > 0) masks.push_back(std::move(mask));
    }
  }
  return masks;
}

}  // namespace kvlift
