// Mutants of caches in models that do not write by TensorScatter, and of the order of sequences.
#include <optional>

#include "fmt/format.h"
#include "verify/mutants/mutant_kinds.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

void Renamed(NodeProto* node, const std::string& from, const std::string& to, bool both) {
  for (std::string& input : *node->mutable_input()) {
    if (input == from) {
      input = to;
    } else if (both && input == to) {
      input = from;
    }
  }
}

// Returns the Gather that reorders a past along its batch axis by an index that is not constant.
std::optional<NodeId> ReorderOf(const MutantSites& sites, const ManifestCache& cache) {
  const Graph& graph = sites.graph();
  const auto axis = static_cast<int64_t>(cache.layout.find('B'));
  for (const Use& use : graph.uses(graph.Find(cache.input))) {
    if (use.node == kNoNode || use.index != 0 || !graph.Is(use.node, "Gather")) continue;
    const int64_t own = IntAttribute(graph.node(use.node), "axis", 0);
    const auto rank = static_cast<int64_t>(cache.layout.size());
    if ((own < 0 ? own + rank : own) != axis) continue;
    if (graph.constant(graph.inputs(use.node)[1]) == nullptr) return use.node;
  }
  return std::nullopt;
}

}  // namespace

void AddOrderMutants(MutantMaker& maker, const MutantSites& sites) {
  maker.Group("wiring");
  const auto& caches = sites.relation().caches;
  for (size_t k = caches.size(); k-- > 0;) {
    const auto reorder = ReorderOf(sites, caches[k]);
    if (!reorder) continue;
    maker.Add(fmt::format("sequences stay in place ({})", caches[k].output), {},
              [&](NodeId n, NodeProto* node, auto*) {
                if (n != *reorder) return;
                *node = MutantMaker::Make("Identity", {node->input(0)}, node->output(0));
              });
    if (!sites.limits().everywhere) return;
  }
}

void AddCacheMutants(MutantMaker& maker, const MutantSites& sites) {
  const Graph& graph = sites.graph();
  maker.Group("wiring");
  const ManifestCache* last = nullptr;
  for (const ManifestCache& cache : sites.relation().caches) {
    if (graph.producer(graph.Find(cache.output)) != kNoNode) last = &cache;
  }
  if (last == nullptr) return;
  const ValueId present = graph.Find(last->output);
  const NodeId writer = graph.producer(present);
  maker.Add("cache not written", {}, [&](NodeId n, NodeProto* node, auto* before) {
    if (n != writer) return;
    node->set_output(graph.output_index(present), "mutant.unused");
    before->push_back(MutantMaker::Make("Identity", {last->input}, last->output));
  });
  if (sites.ReadByNodes(present)) {
    maker.Add("stale values", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n != writer) Renamed(node, last->output, last->input, false);
    });
  }
  for (const ManifestCache& other : sites.relation().caches) {
    const ValueId a = graph.Find(other.input), b = graph.Find(last->input);
    if (a == b || !(graph.type(a) == graph.type(b)) || sites.Captured(a) || sites.Captured(b)) {
      continue;
    }
    maker.Add("caches swapped", {}, [&](NodeId, NodeProto* node, auto*) {
      Renamed(node, other.input, last->input, true);
    });
    break;
  }
}

}  // namespace kvlift
