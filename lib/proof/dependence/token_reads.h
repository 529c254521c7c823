// Finds out which tokens the element of a value reads, and whether one of them is barred: the
// element-wise part of proof/dependence/padding_independence.h. Internal to lib/proof.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proof/correspondence/correspondence.h"
#include "proof/dependence/padding_independence.h"
#include "proof/dependence/token_axes.h"
#include "proof/graphs/pair.h"
#include "sym/forms/forms.h"

namespace kvlift {

// The values that a token may not read outside the attentions: those of later tokens of its step,
// or the results of attentions for any other token.
enum class Barred { kLater, kOthersOfAttention };

class TokenReads {
 public:
  TokenReads(const GraphPair& pair, const Correspondence& twins, Barred barred);

  // Finds the values that are computed from results of attentions. Call it first for
  // Barred::kOthersOfAttention.
  void FindBehindAttention(const ReadAttentions& attentions);
  // Returns true if reading the value at other tokens makes a difference.
  bool Matters(ValueId v) const;

  // Says why an element of a value of this shape may differ in a step of fewer tokens. Indices
  // behind those of the shape have the extents `taken`. in_parts: see ReadInParts.
  PaddingReach Of(sym::Expr e, const std::vector<sym::Expr>& shape,
                  const std::vector<sym::Expr>& taken, bool in_parts = false);

  // Returns what an axis of this extent counts (TokenAxes::AlongOf).
  Along AlongOf(sym::Expr extent, bool in_parts = false) const;
  // Returns the extents of a shape in the source's terms.
  sym::Facts Normal(const std::vector<sym::Expr>& shape) const;
  static std::vector<sym::Expr> Joined(std::vector<sym::Expr> shape,
                                       const std::vector<sym::Expr>& taken);

  // Notes that the statement is not shown for a value, and why.
  void SetNotShown(ValueId v, PaddingReach reach) { reached_[v] = std::move(reach); }
  bool IsNotShown(ValueId v) const { return reached_.contains(v); }
  // Sets whether the axes of c * S indices of a value hold the parts of tokens.
  void ReadInParts(ValueId v, bool in_parts);
  bool IsReadInParts(ValueId v) const { return in_parts_.contains(v); }

 private:
  // The element that is being judged: the extents of its indices, and the tokens that the indices
  // stand for.
  struct Place {
    sym::Facts facts;
    // The number of each such token in the step; below 0 in the past.
    std::vector<sym::Expr> tokens;
  };

  // Judges what an expression reads wherever `known` holds.
  PaddingReach OfRead(sym::Expr e, const Place& place, sym::Expr known);
  PaddingReach OfLoad(sym::Expr load, const Place& place, sym::Expr known);
  // Returns true if an index on an axis of sequences and tokens is that of one of the element's own
  // tokens, in a sequence whose number does not depend on S.
  bool IsOwnRow(sym::Expr at, const Place& place, sym::Expr known) const;
  bool Holds(sym::Expr condition, const Place& place, sym::Expr known) const;
  // Returns true if a token may be read: it is the first of the step, of the past, or not behind
  // one of the element's own tokens. Results of attentions may be read at tokens of the past and at
  // the element's own token, and at the last token where the element has no token of its own.
  bool IsReal(sym::Expr token, const Place& place, sym::Expr known) const;
  std::string Text(sym::Expr e) const;

  const Barred barred_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  const sym::Expr new_;
  const TokenAxes axes_;
  absl::flat_hash_set<ValueId> behind_attention_;
  absl::flat_hash_set<ValueId> in_parts_;               // see ReadInParts
  absl::flat_hash_map<ValueId, PaddingReach> reached_;  // see SetNotShown
};

}  // namespace kvlift
