// Symbolic expressions for the elements of tensors and for their dimensions.
//
// An Expr is an interned, immutable node: within a Pool, two expressions are equal if and only if
// they are the same pointer. Integers are kept as polynomials in a normal form over atoms (indices,
// dimension symbols, loads, floor divisions, selects, predicates), so that equal expressions have
// one form as far as possible. Predicates are the integers 0 and 1. Real numbers occur only as
// Float constants and as loads of float tensors; no arithmetic is done on loads of float tensors
// (see sym/forms/forms.h).
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
#include "sym/expr/dim_symbol.h"

namespace kvlift::sym {

enum class Kind {
  kInteger,   // value()
  kFloat,     // float_value(): a finite non-integer, or +-inf, or NaN; integral floats are kInteger
  kIndex,     // index(): the output index i_k
  kDim,       // dim(): a dimension symbol, an integer >= 0
  kLoad,      // source(), args(): the element of an opaque tensor at the indices args()
  kFloorDiv,  // args(): numerator, denominator (floor division)
  kLe,        // args()[0] <= 0
  kEq,        // args()[0] == 0
  kNot,       // args()[0] is a predicate
  kAnd,       // args(): two or more predicates, sorted; no kAnd among them
  kSelect,    // args(): condition, then, else
  kApply,     // function(), args(): an uninterpreted function ("div", "trunc", ...)
  kSum,       // terms(): two or more monomials, or one with a coefficient other than 1
};

class Node;
using Expr = const Node*;  // Owned by its Pool. Null only where a comment says so.

// Factors of a product, sorted by id; a factor may be repeated.
using Monomial = absl::InlinedVector<Expr, 2>;

// Coefficient * product of atoms; without atoms it is the constant term.
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
  // kLe, kEq, kNot, kAnd, the integers 0 and 1, and the functions "isnan", "isinf", "less" and
  // "finite".
  bool is_predicate() const;
  bool has_index() const { return index_mask_ != 0; }  // true if an index occurs in it
  // True if it is or contains a kLe, kEq or kSelect.
  bool has_condition() const { return has_condition_; }
  // Bit k (k < 31): index k occurs in it. Bit 31: an index from 31 on occurs in it.
  uint32_t index_mask() const { return index_mask_; }
  uint64_t id() const { return id_; }     // order of creation: a deterministic total order
  int64_t size() const { return size_; }  // number of nodes as a tree; saturates

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

// The bounds of the indices of an expression: 0 <= i_k < extents[k]. Lower bounds of dimension
// symbols belong to the Pool.
struct Facts {
  std::vector<Expr> extents;  // By index. Null, and indices beyond the end: only i_k >= 0 is known.
};

enum class Truth { kNo, kYes, kUnknown };

// The number of steps (nodes asked for) after which a Pool is exhausted: a million takes about a
// second, and a decoder about 20,000 per layer. The limit is global and must be set before graphs
// are read.
void SetMaxSteps(int64_t steps);
int64_t MaxSteps();

// Owns all expressions of one analysis. Functions that take `facts` return the normal form under
// them. Arithmetic that overflows int64 gives an opaque result (kApply "overflow"), never a wrong
// one. Not thread-safe.
class Pool {
 public:
  Pool();
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  Expr Integer(int64_t v);
  Expr Float(double v);  // integral values up to 2^53 become kInteger, -0.0 becomes 0
  Expr Index(int k);
  // Returns a dimension symbol, an integer >= min. The highest minimum that was given for a symbol
  // counts.
  Expr Dim(const DimSymbol& symbol, int64_t min = 0);
  // Returns the declared symbol of this name.
  Expr Dim(std::string_view declared, int64_t min = 0);
  // Returns the internal symbol of this name.
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
  Expr FloorDiv(Expr a, Expr b, const Facts& facts);  // opaque if b is 0
  // The result has the sign of b, as ONNX Mod with fmod=0.
  Expr Mod(Expr a, Expr b, const Facts& facts);
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
  // Returns condition ? then : otherwise. Simplifies constant conditions, equal branches,
  // Select(Not p, a, b), and Select(p, 1, 0) = p for predicates; inside a branch, conditions that
  // `condition` decides are replaced.
  Expr Select(Expr condition, Expr then, Expr otherwise);
  // Applies fn to each combination of branches of those xs that are selects, and returns the
  // selects over the results. fn never gets a kSelect as an argument.
  Expr Lift(absl::Span<const Expr> xs, const std::function<Expr(absl::Span<const Expr>)>& fn);

  // Replacements of indices, dimension symbols and atoms. Null entries and missing keys are not
  // replaced.
  struct Substitution {
    std::vector<Expr> indices;
    absl::flat_hash_map<DimSymbol, Expr> dims;
    absl::flat_hash_map<Expr, Expr> atoms;  // whole atoms (loads, divisions); they take precedence
  };
  // Replaces all keys in e at once and returns the normal form under `facts`, which are about the
  // new indices.
  Expr Substitute(Expr e, const Substitution& s, const Facts& facts);

  // Decide a predicate, or an inequality e >= 0, from bounds of indices and symbols. kYes, kNo and
  // true are proofs for all values that the facts allow; kUnknown and false say nothing.
  Truth Prove(Expr predicate, const Facts& facts);
  bool ProveNonNegative(Expr e, const Facts& facts);

  // Returns e where `condition` is known to be true or false: predicates in e that this decides are
  // replaced. Returns e unchanged if it is very large.
  Expr Assume(Expr e, Expr condition, bool truth, const Facts& facts);

  int64_t num_nodes() const;
  // Returns how many nodes were asked for, existing ones included: a measure of work that does not
  // depend on the machine.
  int64_t num_steps() const;
  // Returns true after more than MaxSteps() steps; from then on nothing is proved.
  bool exhausted() const;

 private:
  Expr AtMostZero(Expr p, const Facts& facts);
  Expr WithoutSelectsThatCancel(Expr sum);
  Expr SumOfMaxima(Expr x, Expr y);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

bool ContainsIndex(Expr e, int k);
bool ContainsDim(Expr e, const DimSymbol& symbol);
std::vector<DimSymbol> DimsOf(Expr e);   // sorted, each once
std::vector<ValueId> SourcesOf(Expr e);  // of all loads, sorted, each once
// Returns all loads in e, each once, including loads inside the indices of other loads.
std::vector<Expr> LoadsOf(Expr e);
// Returns all floor divisions in e, each once.
std::vector<Expr> DivisionsOf(Expr e);
// Returns the loads in e that are not inside the indices of another load, each once.
std::vector<Expr> OuterLoadsOf(Expr e);
// The operands of a kAnd; {} for True; else {predicate}.
std::vector<Expr> ConjunctsOf(Expr predicate);
// Splits e into coefficient * atom + rest, with an integer coefficient and no atom in rest. Returns
// nullopt if the atom occurs in another way: inside a load or a division, squared, or with a
// symbolic coefficient.
struct Linear {
  int64_t coefficient;
  Expr rest;
};
std::optional<Linear> LinearIn(Pool& pool, Expr e, Expr atom);

// A length min(`length`, `most`).
struct AtMost {
  Expr length;
  int64_t most;  // 1 or more
};
// Reads min(x, n), also written x - max(x - n, 0), for a number n >= 1. Returns nullopt for other
// expressions.
std::optional<AtMost> AtMostIn(Pool& pool, Expr e);

// Returns an expression as text: "i2 < P ? past[i0, i1, i2, i3] : k[i0, i1, i2 - P, i3]". `names`
// gives the names of sources; if it is null they print as %id.
std::string ToString(Expr e, const Graph* names = nullptr);

}  // namespace kvlift::sym
