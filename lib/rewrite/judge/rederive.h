// Decides how everything outside the attentions that depends on the past length is computed from
// the write index: positions, tables that are read by position, shapes.
//
// Walks the remaining graph backwards from its outputs. Where an operator reads index data that
// depends on P, its operand is replaced by the operand's expression, in which the write index
// stands for P. An operand that cannot be derived is a refusal.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/findings.h"
#include "rewrite/plan/conversion_plan.h"
#include "sym/emit/emission_probe.h"

namespace kvlift {

struct RederiveInput {
  // Values that new nodes provide under their old names (attention outputs, presents).
  absl::flat_hash_set<ValueId> provided;
  absl::flat_hash_set<ValueId> caches;            // pasts and presents; no other node may read them
  absl::flat_hash_set<ValueId> key_length_masks;  // masks, whose width changes
  std::vector<ValueId> roots;                     // values that must be computed
  std::vector<sym::DimSymbol> lengths;            // dim symbols that mean P or depend on it
  // Gives an expression one symbol for P, and P + S for total lengths.
  sym::Pool::Substitution normal;
  sym::Expr batch = nullptr;  // extent of the batch
  bool per_sequence = true;   // P may differ between sequences
  // Readers of caches get views of the rows that they read in the source, so they may stay.
  bool views = false;
};

struct Rederived {
  std::optional<Finding> refusal;  // KV214 or KV215; if set, nothing else is valid
  // Why positions cannot differ between sequences; the caller then calls Rederive again with
  // per_sequence = false. Absent: they can.
  std::optional<std::string> needs_uniform;
  std::vector<RederivedOperand> operands;
  std::set<ValueId> widened;  // see ConversionPlan
  bool reads_caches = false;  // a node that stays reads the rows of a cache
};

Rederived Rederive(sym::Forms& forms, const sym::EmissionProbe& probe, const RederiveInput& input);

}  // namespace kvlift
