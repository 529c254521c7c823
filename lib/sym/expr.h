// Symbolic expressions for the element of a tensor and for its dimensions.
//
// An Expr is an interned, immutable node: two expressions are equal exactly if they are the same
// pointer. Integers are kept as polynomials in a normal form over atoms (indices, dim symbols,
// loads, floor divisions, selects, predicates), so that equal things look equal. Predicates are
// integers 0 and 1. Real numbers occur only as Float constants and as loads of float tensors; no
// arithmetic is done on loads of float tensors (see sym/forms.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "ir/graph.h"
#include "sym/dim_symbol.h"

namespace kvlift::sym {

enum class Kind {
  kInteger,   // value()
  kFloat,     // float_value(): a finite non-integer, or +-inf, or NaN; integral floats are kInteger
  kIndex,     // index(): the output index i_k
  kDim,       // dim(): a dimension symbol, an integer >= 0
  kLoad,      // source(), args(): element of a tensor that is not looked through
  kFloorDiv,  // args(): numerator, denominator (floor division)
  kLe,        // args()[0] <= 0
  kEq,        // args()[0] == 0
  kNot,       // args()[0] is a predicate
  kAnd,       // args(): two or more predicates, sorted, none a kAnd
  kSelect,    // args(): condition, then, else
  kApply,     // function(), args(): an uninterpreted function ("pow", "isnan", "trunc", ...)
  kSum,       // terms(): two or more monomials, or one with a coefficient other than 1
};

class Node;
using Expr = const Node*;  // never null except where a comment says so; owned by the Pool

// Factors of a product, sorted by id; a factor may be repeated.
using Monomial = absl::InlinedVector<Expr, 2>;

// coefficient * product of atoms (empty: the constant term).
struct Term {
  int64_t coefficient;
  Monomial atoms;
};

class Node {
 public:
  Kind kind() const { return kind_; }
  int64_t value() const { return value_; }                         // kInteger
  double float_value() const { return float_; }                    // kFloat
  int index() const { return static_cast<int>(value_); }           // kIndex
  ValueId source() const { return static_cast<ValueId>(value_); }  // kLoad
  const DimSymbol& dim() const { return dim_; }                    // kDim
  const std::string& function() const { return text_; }            // kApply
  absl::Span<const Expr> args() const { return args_; }
  absl::Span<const Term> terms() const { return terms_; }  // kSum
  bool is_integer(int64_t v) const { return kind_ == Kind::kInteger && value_ == v; }
  bool is_predicate() const;  // kLe, kEq, kNot, kAnd, or the integers 0 and 1
  bool has_index() const { return index_mask_ != 0; }  // an index occurs anywhere in it
  // Whether a kLe, kEq or kSelect occurs in it, itself included.
  bool has_condition() const { return has_condition_; }
  // Bit k: the index k occurs in it; bit 31: one from 31 on does.
  uint32_t index_mask() const { return index_mask_; }
  uint64_t id() const { return id_; }     // creation order: a deterministic total order
  int64_t size() const { return size_; }  // number of nodes of the tree, saturating

 private:
  friend class Pool;
  Kind kind_ = Kind::kInteger;
  int64_t value_ = 0;
  double float_ = 0;
  std::string text_;
  DimSymbol dim_;
  std::vector<Expr> args_;
  std::vector<Term> terms_;
  uint64_t id_ = 0;
  int64_t size_ = 1;
  bool has_condition_ = false;
  uint32_t index_mask_ = 0;
};

// What is known about indices and dims when simplifying: 0 <= i_k < extents[k] for each index with
// an extent (null: only i_k >= 0), dims >= their lower bound.
struct Facts {
  std::vector<Expr>
      extents;  // by index; may be shorter than the highest index; entries may be null
};

enum class Truth { kNo, kYes, kUnknown };

// Steps that a pool takes before it is exhausted: about a second for each million. Decoders take
// some 20,000 for a layer. Set before graphs are read.
void SetMaxSteps(int64_t steps);
int64_t MaxSteps();

// Owns all expressions of one analysis. Every function returns the normal form under `facts`.
// Not thread-safe. Coefficient overflow makes a result opaque (kApply "overflow"), never wrong.
class Pool {
 public:
  Pool();
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  Expr Integer(int64_t v);
  Expr Float(double v);  // integral values become kInteger; -0.0 becomes 0
  Expr Index(int k);
  // A dim symbol, an integer >= min. The highest minimum given for a symbol counts.
  Expr Dim(const DimSymbol& symbol, int64_t min = 0);
  // The symbol by which models declare a dimension of this name.
  Expr Dim(std::string_view declared, int64_t min = 0);
  // A symbol of our own, which no model declares.
  Expr Internal(std::string_view name, int64_t min = 0);
  // Declares symbol <= most. `most` must not contain the symbol, and bounds must not be cyclic. A
  // later call replaces the bound.
  void Bound(const DimSymbol& symbol, Expr most);
  Expr Load(ValueId source, absl::Span<const Expr> args);
  Expr Apply(std::string_view function, absl::Span<const Expr> args);

  Expr Add(Expr a, Expr b);
  Expr Sub(Expr a, Expr b);
  Expr Mul(Expr a, Expr b);
  Expr Neg(Expr a);
  Expr FloorDiv(Expr a, Expr b, const Facts& facts);  // b == 0: opaque
  Expr Mod(Expr a, Expr b, const Facts& facts);       // sign of b, as ONNX Mod with fmod=0
  Expr Min(Expr a, Expr b, const Facts& facts);
  Expr Max(Expr a, Expr b, const Facts& facts);

  Expr True() { return Integer(1); }
  Expr False() { return Integer(0); }
  Expr Le(Expr a, Expr b, const Facts& facts);
  Expr Lt(Expr a, Expr b, const Facts& facts);
  Expr Eq(Expr a, Expr b, const Facts& facts);
  Expr Not(Expr p);
  Expr And(Expr p, Expr q);
  Expr Or(Expr p, Expr q);
  // Folds: constant conditions, equal branches, Select(Not p, a, b), Select(p,1,0) = p for
  // predicates, and repeated conditions inside a branch (a branch under p may assume p).
  Expr Select(Expr condition, Expr then, Expr otherwise);
  // Applies fn through kSelect operands: fn sees none at the top of its arguments.
  Expr Lift(absl::Span<const Expr> xs, const std::function<Expr(absl::Span<const Expr>)>& fn);

  // Simultaneous replacement of indices and dims, renormalised under `facts` (facts about the new
  // indices). Null entries and missing keys stay.
  struct Substitution {
    std::vector<Expr> indices;
    absl::flat_hash_map<DimSymbol, Expr> dims;
    absl::flat_hash_map<Expr, Expr> atoms;  // whole atoms (loads, divisions), matched first
  };
  Expr Substitute(Expr e, const Substitution& s, const Facts& facts);

  // Decides a predicate, or an inequality e >= 0, from bounds of indices and dims. Sound: kYes and
  // kNo are proofs for all values the facts allow.
  Truth Prove(Expr predicate, const Facts& facts);
  bool ProveNonNegative(Expr e, const Facts& facts);

  // Replaces `condition` by a known truth inside e.
  Expr Assume(Expr e, Expr condition, bool truth, const Facts& facts);

  int64_t num_nodes() const;
  // Nodes asked for, known ones too: the work done, whatever the machine.
  int64_t num_steps() const;
  // More than MaxSteps(): from now on nothing is proved.
  bool exhausted() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

bool ContainsIndex(Expr e, int k);
bool ContainsDim(Expr e, const DimSymbol& symbol);
std::vector<DimSymbol> DimsOf(Expr e);   // sorted, each once
std::vector<ValueId> SourcesOf(Expr e);  // of all loads, sorted, each once
// All loads, each once; those that stand in the places of other loads, too.
std::vector<Expr> LoadsOf(Expr e);
// All divisions, each once.
std::vector<Expr> DivisionsOf(Expr e);
// The loads that stand in no other load, each once.
std::vector<Expr> OuterLoadsOf(Expr e);
std::vector<Expr> ConjunctsOf(Expr predicate);  // {e} unless a kAnd; {} for True
// e = coefficient * atom + rest with no atom in rest or in coefficient; nullopt if atom occurs
// otherwise (inside a load, a division, squared). coefficient is an integer.
struct Linear {
  int64_t coefficient;
  Expr rest;
};
std::optional<Linear> LinearIn(Pool& pool, Expr e, Expr atom);

// "i2 < P ? past[i0,i1,i2,i3] : k[i0,i1,i2-P,i3]". name_of may be null: sources print as %id.
std::string ToString(Expr e, const Graph* names = nullptr);

}  // namespace kvlift::sym
