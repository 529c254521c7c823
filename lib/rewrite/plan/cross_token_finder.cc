// The part of CrossTokenFinder that finds the symbols by which extents count tokens, sequences and
// rows, and the nodes that are not judged.
#include "rewrite/plan/cross_token_finder.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ir/live_nodes.h"
#include "ir/types.h"

namespace kvlift::internal {
namespace {

using sym::Expr;

}  // namespace

CrossTokenFinder::CrossTokenFinder(const Analysis& a) : graph_(*a.graph), forms_(*a.forms) {
  for (const CacheUpdate& update : a.updates) {
    const sym::Form& past = forms_.Of(update.pair.past);
    const size_t batch = update.layout.find('B');
    if (batch < past.shape.size()) {
      AddSymbols(past.shape[batch], &rows_);
      AddSymbols(past.shape[batch], &sequences_);
      several_sequences_ = several_sequences_ || !past.shape[batch]->is_integer(1);
    }
    AddSymbols(update.new_length, &rows_);
    AddSymbols(update.new_length, &tokens_);
    several_tokens_ = several_tokens_ || !update.new_length->is_integer(1);
    AddSymbols(past.shape[update.axis], &past_);
  }
  past_.insert(PastSymbol());
  AddBatchOfHostInputs();
  for (ValueId v = 0; v < graph_.num_values(); ++v) forms_.Of(v);  // collects assumptions
  AddEqualSymbols(&rows_);
  AddEqualSymbols(&sequences_);
  for (const AnalysedAttention& attention : a.attention) {
    replaced_.insert(attention.node);
    if (!attention.site) continue;
    replaced_.insert(attention.site->nodes.begin(), attention.site->nodes.end());
  }
  LeaveOutCacheWrites(a.updates);
  FindReadersOfRows(a.updates);
}

// Adds the nodes that only serve to write new rows into caches, behind the values that the presents
// are made of.
void CrossTokenFinder::LeaveOutCacheWrites(absl::Span<const CacheUpdate> updates) {
  absl::flat_hash_set<Expr> presents;
  absl::flat_hash_set<ValueId> seen;
  std::vector<ValueId> queue;
  for (const CacheUpdate& update : updates) {
    queue.push_back(update.pair.present);
    const Expr present = forms_.Of(update.pair.present).element;
    presents.insert(present);
    const std::vector<ValueId> made_of = sym::SourcesOf(present);
    seen.insert(made_of.begin(), made_of.end());
  }
  absl::flat_hash_set<NodeId> writing;
  while (!queue.empty()) {
    const NodeId n = graph_.producer(queue.back());
    queue.pop_back();
    if (n == kNoNode || !writing.insert(n).second) continue;
    for (ValueId v : graph_.inputs(n)) {
      if (v != kNoValue && seen.insert(v).second) queue.push_back(v);
    }
  }
  const absl::flat_hash_set<NodeId> live = LiveNodes(graph_);
  const auto is_read_elsewhere = [&](NodeId n) {
    const auto outputs = graph_.outputs(n);
    return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) {
      if (v == kNoValue) return false;
      const sym::Form& form = forms_.Of(v);
      if (!form.known_rank) return true;
      if (presents.contains(form.element)) return false;
      const auto uses = graph_.uses(v);
      return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
        if (use.kind == Use::Kind::kGraphOutput) return true;
        return live.contains(use.node) && !writing.contains(use.node);
      });
    });
  };
  for (bool fewer = true; fewer;) {
    fewer = absl::erase_if(writing, is_read_elsewhere) > 0;
  }
  replaced_.insert(writing.begin(), writing.end());
}

// Adds the symbols on the first axis of integer inputs, which counts sequences.
void CrossTokenFinder::AddBatchOfHostInputs() {
  for (ValueId v : graph_.graph_inputs()) {
    const sym::Form& form = forms_.Of(v);
    if (!form.known_rank || form.shape.size() < 2) continue;
    if (IsIntegerType(graph_.type(v).elem_type)) AddSymbols(form.shape.front(), &sequences_);
  }
}

// Adds the symbols that operators need to equal one of these.
void CrossTokenFinder::AddEqualSymbols(absl::flat_hash_set<sym::DimSymbol>* dims) const {
  for (bool more = true; more;) {
    more = false;
    for (const sym::FormAssumption& assumption : forms_.assumptions()) {
      const auto pair = EqualSymbols(assumption.predicate);
      if (!pair || dims->contains(pair->first) == dims->contains(pair->second)) continue;
      dims->insert(pair->first);
      dims->insert(pair->second);
      more = true;
    }
  }
}

// Reads the two symbols of "a - b == 0".
std::optional<std::pair<sym::DimSymbol, sym::DimSymbol>> CrossTokenFinder::EqualSymbols(
    Expr predicate) {
  if (predicate->kind() != sym::Kind::kEq) return std::nullopt;
  const Expr sum = predicate->args()[0];
  if (sum->kind() != sym::Kind::kSum || sum->terms().size() != 2) return std::nullopt;
  const auto is_symbol = [](const sym::Term& term) {
    return term.atoms.size() == 1 && term.atoms[0]->kind() == sym::Kind::kDim;
  };
  const sym::Term &a = sum->terms()[0], &b = sum->terms()[1];
  if (!is_symbol(a) || !is_symbol(b) || a.coefficient * b.coefficient != -1) return std::nullopt;
  return std::make_pair(a.atoms[0]->dim(), b.atoms[0]->dim());
}

// Returns true if an extent depends on the number of sequences.
bool CrossTokenFinder::HoldsSequences(Expr extent) const {
  const std::vector<sym::DimSymbol> dims = sym::DimsOf(extent);
  return std::any_of(dims.begin(), dims.end(),
                     [&](const sym::DimSymbol& dim) { return sequences_.contains(dim); });
}

// Returns true if the extent counts tokens of a step, and not sequences alone.
bool CrossTokenFinder::HoldsTokens(Expr extent) const {
  const std::vector<sym::DimSymbol> dims = sym::DimsOf(extent);
  return HoldsRows(extent) && std::any_of(dims.begin(), dims.end(), [&](const sym::DimSymbol& dim) {
           return !sequences_.contains(dim);
         });
}

void CrossTokenFinder::AddSymbols(Expr extent, absl::flat_hash_set<sym::DimSymbol>* dims) {
  for (const sym::DimSymbol& dim : sym::DimsOf(extent)) dims->insert(dim);
}

ValueId CrossTokenFinder::Operand(NodeId n, int k) const {
  const auto inputs = graph_.inputs(n);
  return k < static_cast<int>(inputs.size()) ? inputs[k] : kNoValue;
}

}  // namespace kvlift::internal
