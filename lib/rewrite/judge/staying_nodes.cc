#include "rewrite/judge/staying_nodes.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kvlift::internal {

StayingNodes::StayingNodes(const Analysis& a, const ConversionPlan& plan)
    : graph_(*a.graph), plan_(plan) {
  for (const RederivedOperand& operand : plan.operands) {
    rederived_.insert({operand.node, operand.operand});
  }
  for (size_t k = 0; k < plan.caches.size(); ++k) {
    provided_.insert(plan.caches[k].pair.present);
    for (const AttendedSlice& same : plan.writes[k].attended_slices) provided_.insert(same.value);
  }
  for (size_t k = 0; k < a.attention.size(); ++k) {
    if (plan.replaced(k) == nullptr) continue;
    provided_.insert(graph_.outputs(a.attention[k].node)[0]);
  }
  std::vector<ValueId> read = ValuesRead(a, plan);
  read.insert(read.end(), graph_.graph_outputs().begin(), graph_.graph_outputs().end());
  Walk(std::move(read));
}

void StayingNodes::Walk(std::vector<ValueId> values) {
  while (!values.empty()) {
    const ValueId v = values.back();
    values.pop_back();
    const NodeId n = v == kNoValue || provided_.contains(v) ? kNoNode : graph_.producer(v);
    if (n == kNoNode || !nodes_.insert(n).second) continue;
    const auto inputs = graph_.inputs(n);
    for (int k = 0; k < static_cast<int>(inputs.size()); ++k) {
      if (!rederived_.contains({n, k})) values.push_back(inputs[k]);
    }
    values.insert(values.end(), graph_.captures(n).begin(), graph_.captures(n).end());
  }
}

bool StayingNodes::ReadsView(const PlannedCache& cache) const {
  return cache.grows() ? plan_.views() : cache.placement.moved;
}

NodeId StayingNodes::ReaderOfPast(const PlannedCache& cache) const {
  for (const Use& use : graph_.uses(cache.pair.past)) {
    if (use.kind == Use::Kind::kGraphOutput || !nodes_.contains(use.node)) continue;
    if (use.kind == Use::Kind::kNodeInput && rederived_.contains({use.node, use.index})) continue;
    if (!graph_.Is(use.node, "Shape") || ReadsView(cache)) return use.node;
  }
  return kNoNode;
}

NodeId StayingNodes::CaptureOf(const PlannedCache& cache, ValueId v) const {
  if (ReadsView(cache)) return kNoNode;
  for (const Use& use : graph_.uses(v)) {
    if (use.kind == Use::Kind::kCapture && nodes_.contains(use.node)) return use.node;
  }
  return kNoNode;
}

bool StayingNodes::HasValue(const std::string& name) const {
  const ValueId v = graph_.Find(name);
  if (v == kNoValue || plan_.dropped.contains(v)) return false;
  if (provided_.contains(v)) return true;
  const NodeId n = graph_.producer(v);
  if (n != kNoNode) return nodes_.contains(n);
  const auto uses = graph_.uses(v);
  return graph_.is_graph_input(v) || std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
           return nodes_.contains(use.node);
         });
}

}  // namespace kvlift::internal
