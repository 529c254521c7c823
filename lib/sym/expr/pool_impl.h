// The storage of a Pool, and helpers that its parts share. Internal to lib/sym.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sym/expr/expr.h"

namespace kvlift::sym {

// A polynomial under construction: monomial -> coefficient.
using Polynomial = absl::flat_hash_map<Monomial, int64_t>;

struct Pool::Impl {
  // Returns the existing node that equals `node`, or adds it.
  Expr Intern(Node node);
  // Returns the normal form of a polynomial.
  Expr FromPolynomial(const Polynomial& p);
  // Returns the normal form of a sum of terms, which must be sorted by their atoms, with distinct
  // monomials and coefficients other than 0.
  Expr FromTerms(std::vector<Term> terms);
  // Returns a + factor * b.
  Expr Combine(Expr a, Expr b, int64_t factor);
  // Returns a new opaque expression that equals no other.
  Expr Overflow();

  std::deque<Node> nodes;
  std::array<Expr, 16> few_integers = {};  // null until they are first asked for
  absl::flat_hash_map<size_t, absl::InlinedVector<Expr, 1>> by_hash;
  absl::flat_hash_map<DimSymbol, int64_t> dim_minimum;
  absl::flat_hash_map<DimSymbol, Expr> dim_maximum;
  // The answers of Pool::ProveNonNegative, by expression and extents of indices, since the bounds
  // of dimensions were last changed.
  absl::flat_hash_map<std::pair<Expr, std::vector<Expr>>, bool> non_negative;
  // The answers of Pool::Le for e <= 0, by e and extents of indices. Without them, the cases of
  // nested selects would be compared again for each case around them.
  absl::flat_hash_map<std::pair<Expr, std::vector<Expr>>, Expr> at_most_zero;
  int64_t overflows = 0;
  int64_t steps = 0;
};

// Returns the terms of any expression: none for 0. The constant term has no atoms.
std::vector<Term> TermsOf(Expr e);
// Adds one term to *p. Returns false if a coefficient overflows.
bool AddTerm(Polynomial* p, Monomial atoms, int64_t coefficient);
// Returns true if `part` occurs anywhere in e, including e itself.
bool ContainsNode(Expr e, Expr part);
// Returns e without its constant term, and that term.
std::pair<Expr, int64_t> SplitConstant(Pool& pool, Expr e);
// Splits e into *coefficient * atom + *rest. Neither has the atom as a factor, but it may occur
// inside their atoms. Returns false if a term has the atom squared.
bool CollectLinear(Pool& pool, Expr e, Expr atom, Expr* coefficient, Expr* rest);

}  // namespace kvlift::sym
