// Storage of a Pool, and what its parts share. Internal to lib/sym.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sym/expr.h"

namespace kvlift::sym {

// A polynomial while it is being worked on: monomial -> coefficient.
using Polynomial = absl::flat_hash_map<Monomial, int64_t>;

struct Pool::Impl {
  Expr Intern(Node node);
  // The normal form of a polynomial.
  Expr FromPolynomial(const Polynomial& p);
  // Of terms in the order of their atoms, each monomial once.
  Expr FromTerms(std::vector<Term> terms);
  // a + factor * b.
  Expr Combine(Expr a, Expr b, int64_t factor);
  Expr Overflow();

  std::deque<Node> nodes;
  std::array<Expr, 16> few_integers = {};  // null until they are asked for
  absl::flat_hash_map<size_t, absl::InlinedVector<Expr, 1>> by_hash;
  absl::flat_hash_map<DimSymbol, int64_t> dim_minimum;
  absl::flat_hash_map<DimSymbol, Expr> dim_maximum;
  int64_t overflows = 0;
  int64_t steps = 0;
};

// Terms of any expression: {} for 0, the constant term has no atoms.
std::vector<Term> TermsOf(Expr e);
// p += factor * e; false on overflow.
bool AddTo(Polynomial* p, Expr e, int64_t factor);
bool AddTerm(Polynomial* p, Monomial atoms, int64_t coefficient);
// Does `part` occur anywhere in e?
bool ContainsNode(Expr e, Expr part);
// e without its constant term, and that term.
std::pair<Expr, int64_t> SplitConstant(Pool& pool, Expr e);
// b such that e = a*atom + b with neither holding atom at the top; false if atom occurs squared.
bool CollectLinear(Pool& pool, Expr e, Expr atom, Expr* coefficient, Expr* rest);

}  // namespace kvlift::sym
