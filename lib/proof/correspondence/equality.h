// Decides whether two expressions are equal under given conditions. The answer "no" also covers
// what could not be decided, or not within a fixed number of steps.
#pragma once

#include <cstdint>
#include <vector>

#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/obligations.h"
#include "sym/forms/forms.h"

namespace kvlift {

class Equality {
 public:
  // `twins` knows that rows fit into their slots, under which it simplifies what it translates;
  // where it is null, nothing is known of that. `obligations` receives each equality that is asked
  // for, with the answer; may be null.
  explicit Equality(sym::Forms& forms, const Correspondence* twins = nullptr,
                    Obligations* obligations = nullptr)
      : forms_(forms), pool_(forms.pool()), twins_(twins), obligations_(obligations) {}

  // Sets a premise that holds in all later questions. Replaces an earlier one.
  void Suppose(sym::Expr premise) { premise_ = premise; }
  // Returns true if both are equal wherever `known` holds. Returns false if that is not shown or an
  // argument is null.
  bool Equal(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts);
  // Returns true if `conclusion` holds wherever `premise` does; false if that is not shown.
  bool Follows(sym::Expr premise, sym::Expr conclusion, const sym::Facts& facts);
  // Reports to the obligations whether two expressions were shown to be equal.
  void Record(bool holds, sym::Expr mine, sym::Expr theirs, sym::Expr known,
              const sym::Facts& facts);
  // Replaces loads of boolean tensors by comparisons with 0, so that any number but 0 is true. Null
  // stays null.
  sym::Expr AsTruth(sym::Expr e);

  sym::Expr False() const { return pool_.False(); }
  // Receives the equalities; null if nothing does.
  Obligations* obligations() const { return obligations_; }

 private:
  bool Holds(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts);
  // Returns true if both are equal where the rows of all sequences fit into the slots, and adds
  // that to the grounds of the comparison.
  bool HoldsWhereRowsFit(sym::Expr mine, sym::Expr theirs, sym::Expr known,
                         const sym::Facts& facts);
  bool Equal(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts, int depth);
  // Returns true if both are selects with the same condition and the same branches; either may have
  // the condition negated and its branches exchanged.
  bool SameCases(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts,
                 int depth);
  // Returns true if both are equal in each branch of the condition of a select at the top of
  // either.
  bool InBothCases(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts,
                   int depth);
  // Returns true if two predicates are equal both where a comparison holds that only one of them
  // makes, and where it does not hold.
  bool InCasesOfBound(sym::Expr mine, sym::Expr theirs, sym::Expr known, const sym::Facts& facts,
                      int depth);
  // Returns true if two predicates are equal both where a condition that divides one of them into
  // cases holds, and where it does not hold.
  bool InCasesOfCondition(sym::Expr mine, sym::Expr theirs, sym::Expr known,
                          const sym::Facts& facts, int depth);
  // Replaces the index of an element by 0 where `known` leaves no other value.
  sym::Expr Pinned(sym::Expr e, sym::Expr known, const sym::Facts& facts);
  // Returns true if the conclusion holds wherever the premise does, in each case of the conditions
  // that divide the conclusion.
  bool FollowsInAllCases(sym::Expr premise, sym::Expr conclusion, const sym::Facts& facts,
                         int depth);
  // Returns true if q holds wherever p does.
  bool Implies(sym::Expr p, sym::Expr q, const sym::Facts& facts);
  // Returns true if p never holds.
  bool IsImpossible(sym::Expr p, const sym::Facts& facts);
  // Lists what follows from a conjunction: its parts, their bounds, and each part simplified under
  // the others.
  std::vector<sym::Expr> Known(sym::Expr p, const sym::Facts& facts);
  // Replaces the index of each axis of extent 1 by 0.
  sym::Expr Settled(sym::Expr e, const sym::Facts& facts);
  // Simplifies e with every conjunct of `known` taken as true.
  sym::Expr Under(sym::Expr e, sym::Expr known, const sym::Facts& facts);
  // Returns the sizes that a conjunction of these parts allows one number only.
  sym::Pool::Substitution BoundSizes(absl::Span<const sym::Expr> parts);
  // Replaces floor divisions whose quotient is a known number.
  sym::Expr Divided(sym::Expr e, sym::Expr known, const sym::Facts& facts);
  // The smallest value of each index that `known` allows, as far as a conjunct says so; 0
  // otherwise.
  std::vector<sym::Expr> LeastIndices(sym::Expr known);
  // The premise, together with what follows from it for sums of its bounds and for indices.
  sym::Expr Supposed(const sym::Facts& facts);
  // Splits x == 0 into x <= 0 and -x <= 0; other conjuncts stay as they are.
  std::vector<sym::Expr> Bounds(sym::Expr predicate);

  // Returns the conjunction of the bounds of all conjuncts.
  sym::Expr AsBounds(sym::Expr predicate);

  // Returns true if the current question has used up its steps.
  bool TakesLong() const;

  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence* twins_;
  Obligations* obligations_;
  sym::Expr premise_ = pool_.True();
  int64_t begun_ = 0;  // the pool's step count when the question was asked
};

}  // namespace kvlift
