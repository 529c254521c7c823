#include "proof/facts/matches.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "fmt/format.h"
#include "ir/types.h"
#include "proof/graphs/hidden_differences.h"
#include "proof/lemmas/joint/quotient.h"
#include "proof/lemmas/joint/rotation_fused.h"
#include "proof/lemmas/names.h"
#include "proof/lemmas/scale_moved.h"
#include "proof/lower/expand_contrib_ops.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

// The largest number of source nodes that are compared with one node.
constexpr size_t kMostMatches = 32;

Grounds DoubtedGrounds() {
  Grounds grounds;
  grounds.doubted = true;
  return grounds;
}

}  // namespace

Matches::Matches(const GraphPair& pair, bool branches, Correspondence* twins, Nodes* nodes)
    : pair_(pair),
      graph_(pair.graph()),
      forms_(pair.forms()),
      branches_(branches),
      twins_(twins),
      nodes_(nodes) {
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (pair_.IsInAfter(n) || graph_.outputs(n).empty()) continue;
    const std::string& name = graph_.name(graph_.outputs(n)[0]);
    if (name.rfind(kExpandedPrefix, 0) == 0) unnamed_.push_back(n);
    if (graph_.Is(n, "Constant")) constants_.push_back(n);
    by_operator_[graph_.node(n).op_type()].push_back(n);
  }
}

void Matches::Match(NodeId node) {
  const ValueId first = graph_.outputs(node)[0];
  const ValueId theirs = pair_.Before(pair_.NameOf(first));
  const NodeId other = theirs == kNoValue ? kNoNode : graph_.producer(theirs);
  if (other == kNoNode) {
    MatchUnnamed(node);
    return;
  }
  twins_->TakeGrounds();
  if (IsRotationOf(pair_, *twins_, node, theirs)) {
    Grounds grounds = twins_->TakeGrounds();
    grounds.AddLemma(lemmas::kRotationFused);
    return twins_->SetTwin(first, theirs, Sameness::kWhole, std::move(grounds));
  }
  twins_->TakeGrounds();
  const auto same = [&](ValueId x, ValueId y) { return nodes_->Compare(x, y) == Sameness::kWhole; };
  if (IsSameQuotient(pair_, *twins_, node, other, same)) {
    return twins_->SetTwin(first, theirs, Sameness::kWhole, twins_->TakeGrounds());
  }
  twins_->TakeGrounds();
  if (const auto compared = nodes_->CompareNodes(node, other); !compared.why_not.empty()) {
    if (MatchUnnamed(node)) return;
    const bool moves = graph_.outputs(node).size() == graph_.outputs(other).size() &&
                       IsFloatType(forms_.ElementType(first));
    if (!moves || nodes_->Compare(first, theirs) != Sameness::kNone) return;
    // The plans test what the node really computes. Facts about rows are proved as if it were the
    // same.
    unlike_[node] = Difference{compared.why_not, compared.refuted};
    SetTwins(node, other, Sameness::kWhole, DoubtedGrounds());
  } else {
    SetTwins(node, other, compared.results, twins_->TakeGrounds());
  }
}

void Matches::MatchFurther(NodeId node) {
  const auto outputs = graph_.outputs(node);
  for (size_t k = 1; k < outputs.size(); ++k) {
    const ValueId theirs =
        outputs[k] == kNoValue ? kNoValue : pair_.Before(pair_.NameOf(outputs[k]));
    const NodeId other = theirs == kNoValue ? kNoNode : graph_.producer(theirs);
    if (other == kNoNode || graph_.output_index(theirs) != static_cast<int>(k)) continue;
    twins_->TakeGrounds();
    const auto compared = nodes_->CompareNodes(node, other);
    if (!compared.why_not.empty() || compared.results != Sameness::kWhole) continue;
    twins_->SetTwin(outputs[k], theirs, Sameness::kWhole, twins_->TakeGrounds());
  }
}

// Finds a twin under another name, or among the nodes that ExpandContribOps made. Candidates read a
// value that this node reads.
bool Matches::MatchUnnamed(NodeId node) {
  const ValueId first = graph_.outputs(node)[0];
  const bool packs = graph_.Is(node, "BitShift") || graph_.Is(node, "BitwiseOr") ||
                     graph_.Is(node, "BitwiseAnd") || graph_.Is(node, "QuantizeLinear");
  const int32_t type = forms_.ElementType(first);
  // Branches give the same name to other nodes, also to those that compute integers.
  const bool integers = IsIntegerType(type) && (branches_ || graph_.Is(node, "Cast"));
  if (!(packs || integers || IsFloatType(type)) || !forms_.Of(first).opaque) return false;
  if (graph_.Is(node, "Constant")) return MatchConstant(node);
  for (NodeId other : Candidates(node)) {
    twins_->TakeGrounds();
    const auto compared = nodes_->CompareNodes(node, other);
    if (!compared.why_not.empty()) continue;
    SetTwins(node, other, compared.results, twins_->TakeGrounds());
    return true;
  }
  return false;
}

// Finds the Constant node with the same bytes.
bool Matches::MatchConstant(NodeId node) {
  for (NodeId other : constants_) {
    if (!SameAttributes(graph_.node(node), graph_.node(other))) continue;
    SetTwins(node, other, Sameness::kWhole, {});
    return true;
  }
  return false;
}

// Lists nodes that are no twin yet first: the converted model may compute something twice that the
// source computes once.
std::vector<NodeId> Matches::Candidates(NodeId node) {
  std::vector<NodeId> found;
  for (const bool taken : {false, true}) {
    for (ValueId input : graph_.inputs(node)) {
      const ValueId theirs = input == kNoValue ? kNoValue : twins_->TwinOf(input);
      if (theirs == kNoValue) continue;
      for (const Use& use : graph_.uses(theirs)) AddCandidate(node, use.node, taken, &found);
    }
    for (NodeId other : unnamed_) AddCandidate(node, other, taken, &found);
    const bool kept = sym::QuantizedOperandOf(graph_, graph_.outputs(node)[0]) != kNoValue;
    if (!branches_ && !kept) continue;
    for (NodeId other : by_operator_[graph_.node(node).op_type()]) {
      AddCandidate(node, other, taken, &found);
    }
  }
  return found;
}

// Returns true if operands and results that both nodes have are of the same element types, and
// those of the source have no more axes: what can be seen without comparing elements.
bool Matches::IsAlike(NodeId node, NodeId other) const {
  const auto same_types = [&](absl::Span<const ValueId> mine, absl::Span<const ValueId> theirs) {
    for (size_t k = 0; k < std::min(mine.size(), theirs.size()); ++k) {
      if (mine[k] == kNoValue || theirs[k] == kNoValue) continue;
      if (forms_.ElementType(mine[k]) != forms_.ElementType(theirs[k])) return false;
    }
    return true;
  };
  const sym::Form mine = forms_.Of(graph_.outputs(node)[0]);
  const sym::Form theirs = forms_.Of(graph_.outputs(other)[0]);
  const bool known = mine.known_rank && theirs.known_rank;
  return same_types(graph_.inputs(node), graph_.inputs(other)) &&
         same_types(graph_.outputs(node), graph_.outputs(other)) &&
         (!known || mine.shape.size() >= theirs.shape.size());
}

void Matches::AddCandidate(NodeId node, NodeId other, bool taken,
                           std::vector<NodeId>* found) const {
  const bool fits = other != kNoNode && !pair_.IsInAfter(other) && !graph_.outputs(other).empty() &&
                    graph_.node(other).op_type() == graph_.node(node).op_type() &&
                    taken_.contains(graph_.outputs(other)[0]) == taken &&
                    std::find(found->begin(), found->end(), other) == found->end() &&
                    IsAlike(node, other);
  if (fits && found->size() < kMostMatches) found->push_back(other);
}

void Matches::SetTwins(NodeId mine, NodeId theirs, Sameness same, const Grounds& grounds) {
  if (!grounds.doubted) taken_.insert(graph_.outputs(theirs)[0]);
  for (size_t k = 0; k < graph_.outputs(mine).size(); ++k) {
    const ValueId x = graph_.outputs(mine)[k], y = graph_.outputs(theirs)[k];
    if (x != kNoValue && y != kNoValue) twins_->SetTwin(x, y, same, grounds);
  }
}

Matches::Difference Matches::FirstUnlike(ValueId output) const {
  absl::flat_hash_set<ValueId> seen;
  absl::flat_hash_set<NodeId> unlike;
  std::vector<ValueId> open = {output};
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    const NodeId n = value == kNoValue ? kNoNode : graph_.producer(value);
    if (n == kNoNode || !pair_.IsInAfter(n) || !seen.insert(value).second) continue;
    if (unlike_.contains(n)) unlike.insert(n);
    for (ValueId input : graph_.inputs(n)) open.push_back(input);
  }
  if (unlike.empty()) return {"some operator, or what it reads, is another one", false};
  const NodeId first = *absl::c_min_element(unlike);
  const Difference& why = unlike_.at(first);
  // Several factors may cancel each other.
  const bool may_cancel = unlike.size() > 1 && absl::c_all_of(unlike, [&](NodeId n) {
                            return ReadFactor(forms_, n).has_value();
                          });
  const bool refuted = why.refuted && !may_cancel && NodesThatShowIn(pair_, output).contains(first);
  return {fmt::format("{} {}", pair_.NameOf(graph_.outputs(first)[0]), why.text), refuted};
}

}  // namespace kvlift
