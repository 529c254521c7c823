// Whether two expressions are one under what is known.
#pragma once

#include <cstdint>
#include <vector>

#include "proof/obligations.h"
#include "sym/forms.h"

namespace kvlift {

class Equality {
 public:
  // obligations: receives what is found to be equal, and what is not; may be null.
  explicit Equality(sym::Forms& forms, Obligations* obligations = nullptr)
      : forms_(forms), pool_(forms.pool()), obligations_(obligations) {}

  // What holds in all that is asked from now on.
  void Suppose(sym::Expr premise) { premise_ = premise; }
  // Whether they are the same wherever `known` holds; false also if that is not seen, or not soon,
  // or one is null.
  bool Equal(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts);
  // Whether the second holds wherever the first does; false also if that is not seen.
  bool Follows(sym::Expr premise, sym::Expr conclusion, const sym::Facts& facts);
  // Tells whoever listens whether two expressions are seen to be one.
  void Note(bool holds, sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts);
  // Truth values that are read as they are, as comparisons with 0. Null stays null.
  sym::Expr AsTruth(sym::Expr e);

  sym::Expr False() const { return pool_.False(); }
  // Who is told of equalities; null if nobody listens.
  Obligations* obligations() const { return obligations_; }

 private:
  bool Holds(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts);
  bool Equal(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts, int depth);
  // Whether both select by one condition, and equal things; either may have its branches the other
  // way round.
  bool SameCases(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts,
                 int depth);
  // Whether they are equal in both branches of a condition that stands in front of either.
  bool InBothCases(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts,
                   int depth);
  bool Implies(sym::Expr p, sym::Expr q, const sym::Facts& facts);
  bool IsImpossible(sym::Expr p, const sym::Facts& facts);
  // What is known of a conjunction: its parts, their bounds, each under the others.
  std::vector<sym::Expr> Known(sym::Expr p, const sym::Facts& facts);
  // e with 0 for indices along axes that have one element only.
  sym::Expr Settled(sym::Expr e, const sym::Facts& facts);
  sym::Expr Under(sym::Expr e, sym::Expr known, const sym::Facts& facts);
  // e with numbers for divisions whose result is known.
  sym::Expr Divided(sym::Expr e, sym::Expr known, const sym::Facts& facts);
  std::vector<sym::Expr> LeastIndices(sym::Expr known);
  // The premise, and what follows from it for indices.
  sym::Expr Supposed(const sym::Facts& facts);
  // x == 0 as x <= 0 and -x <= 0.
  std::vector<sym::Expr> Bounds(sym::Expr predicate);

  bool TakesLong() const;

  sym::Forms& forms_;
  sym::Pool& pool_;
  Obligations* obligations_;
  sym::Expr premise_ = pool_.True();
  int64_t begun_ = 0;  // steps of the pool before the question
};

}  // namespace kvlift
