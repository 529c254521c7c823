// Everything outside the attentions that depends on the past's length is derived again from the
// write index: positions, tables read by position, shapes.
//
// The graph that stays is walked backwards from its outputs. Where a real operator reads index data
// that depends on P, its operand is replaced by nodes for the operand's expression with P := the
// write index. What cannot be derived again is a refusal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/findings.h"
#include "ir/patch.h"
#include "sym/emit.h"
#include "sym/forms.h"

namespace kvlift {

struct RederiveInput {
  // Values that the rewritten graph provides under their old names (attention outputs, presents).
  absl::flat_hash_set<ValueId> provided;
  absl::flat_hash_set<ValueId> caches;       // pasts and presents: nothing else may read them
  absl::flat_hash_set<ValueId> wide_inputs;  // masks: their width changes
  std::vector<ValueId> roots;                // values that must be computed
  std::vector<sym::DimSymbol> lengths;       // dim symbols that mean P or depend on it
  // Normalises an expression: one symbol for P, total length as P + S.
  sym::Pool::Substitution normal;
  sym::Expr batch = nullptr;  // dim of the batch
  bool per_sequence = true;
  // Caches are read through views that look as they did: what cannot be derived again may stay.
  bool views = false;
};

struct Rederived {
  std::optional<Finding> refusal;
  // Set if positions cannot differ between sequences: run again with per_sequence = false.
  std::optional<std::string> needs_uniform;
  absl::flat_hash_map<std::pair<NodeId, int>, std::string> operands;
  bool reads_caches = false;  // something that stays reads the rows of a cache
};

Rederived Rederive(sym::Forms& forms, sym::Emitter& emitter, const RederiveInput& input);

}  // namespace kvlift
