// An Einsum of two computed tensors that is a batched matrix product becomes Transpose and MatMul,
// which attention rules read: "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"; also with queries in groups,
// "bqhgd,bkhd->bhgqk", "bhgqk,bkhd->bqhgd", where the keys are those of all groups.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/operators/einsum_equation.h"
#include "rewrite/lower/fused/fused_lowering.h"

namespace kvlift::fused {
namespace {

// The letters of the left and right operand, and of the result.
struct Equation {
  std::string a, b, out;
};

// Reads an equation of two operands with no letter twice in one term.
std::optional<Equation> Read(Lowering& l, NodeId n) {
  std::vector<size_t> ranks;
  if (l.Form(n, 0).known_rank && l.Form(n, 1).known_rank) {
    ranks = {l.Form(n, 0).shape.size(), l.Form(n, 1).shape.size()};
  }
  const auto read = ReadEinsumEquation(StringAttribute(l.graph().node(n), "equation", ""), ranks);
  if (!read || read->operands.size() != 2 || !read->HasEachLabelOnce()) return std::nullopt;
  return Equation{read->operands[0], read->operands[1], read->result};
}

bool Has(const std::string& term, char letter) { return term.find(letter) != std::string::npos; }

// Returns the number of letters that `term` has and `other` has not.
size_t Alone(const std::string& term, const std::string& other) {
  return std::count_if(term.begin(), term.end(), [&](char c) { return !Has(other, c); });
}

// The letters of a product of matrices [row, inner] and [inner, column], one per batch index. The
// rows are those of the left operand alone; the last of them is that of the matrices, and each
// index of the others has the same right matrix.
struct Letters {
  std::string batch, rows, inner, column;
};

Letters Sort(const Equation& e) {
  Letters letters;
  for (char c : e.out) {
    if (Has(e.a, c) && Has(e.b, c)) {
      letters.batch += c;
    } else {
      (Has(e.a, c) ? letters.rows : letters.column) += c;
    }
  }
  for (char c : e.a) {
    if (!Has(e.out, c)) letters.inner += c;
  }
  // Scores and weights have the batch in front, and then the rows of matrices behind all others.
  if (!e.out.starts_with(letters.batch) && e.a.starts_with(letters.batch)) {
    letters.rows.clear();
    for (char c : e.a) {
      if (Has(e.out, c) && !Has(e.b, c)) letters.rows += c;
    }
  }
  return letters;
}

bool IsProduct(const Equation& e, const Letters& of) {
  return !of.batch.empty() && !of.rows.empty() && of.column.size() == 1 && of.inner.size() == 1 &&
         Has(e.b, of.inner[0]) && e.a.size() == of.batch.size() + of.rows.size() + 1 &&
         e.b.size() == of.batch.size() + 2;
}

std::vector<int64_t> Order(const std::string& from, const std::string& to) {
  std::vector<int64_t> perm;
  for (char c : to) perm.push_back(static_cast<int64_t>(from.find(c)));
  return perm;
}

std::string Ordered(Lowering& l, const std::string& value, const std::string& from,
                    const std::string& to) {
  if (from == to) return value;
  return l.nodes().Add("Transpose", {value}, "operand", {MakeAttribute("perm", Order(from, to))});
}

// Returns true if the extents of a letter may differ: an Einsum broadcasts an extent of 1, MatMul
// does not. Different extents count as such if one is never below the other; two symbols that
// inputs declare do not.
bool MayDiffer(Lowering& l, NodeId n, const Equation& e, int left, char letter) {
  const sym::Form &a = l.Form(n, left), &b = l.Form(n, 1 - left);
  if (!a.known_rank || !b.known_rank) return false;
  sym::Pool& pool = l.forms().pool();
  const sym::Expr x = a.shape[e.a.find(letter)], y = b.shape[e.b.find(letter)];
  return x != y &&
         (pool.ProveNonNegative(pool.Sub(x, y), {}) || pool.ProveNonNegative(pool.Sub(y, x), {}));
}

}  // namespace

bool LowerEinsumProduct(Lowering& l, NodeId n) {
  const Graph& graph = l.graph();
  if (!graph.Is(n, "Einsum") || graph.inputs(n).size() != 2) return false;
  for (ValueId input : graph.inputs(n)) {
    if (graph.constant(input) != nullptr) return false;
  }
  auto read = Read(l, n);
  if (!read) return false;
  Equation& e = *read;
  // Several letters of one operand are rows of the left matrix, whichever operand it is.
  const int left = Alone(e.b, e.a) > Alone(e.a, e.b) ? 1 : 0;
  if (left == 1) std::swap(e.a, e.b);
  const Letters of = Sort(e);
  if (!IsProduct(e, of) || MayDiffer(l, n, e, left, of.inner[0])) return false;
  l.Scope(n);
  l.patch().remove_nodes.insert(n);
  const std::string a = Ordered(l, l.in(n, left), e.a, of.batch + of.rows + of.inner);
  std::string b = Ordered(l, l.in(n, 1 - left), e.b, of.batch + of.inner + of.column);
  if (of.rows.size() > 1) {
    std::vector<int64_t> axes(of.rows.size() - 1);
    std::iota(axes.begin(), axes.end(), of.batch.size());
    b = l.nodes().Add("Unsqueeze", {b, l.nodes().Int64s(axes)}, "of_all_groups");
  }
  const std::string made = of.batch + of.rows + of.column;
  if (made == e.out) {
    l.nodes().AddNamed("MatMul", {a, b}, "MatMul", l.out(n, 0));
  } else {
    const std::string c = l.nodes().Add("MatMul", {a, b}, "MatMul");
    l.nodes().AddNamed("Transpose", {c}, "Transpose", l.out(n, 0),
                       {MakeAttribute("perm", Order(made, e.out))});
  }
  return true;
}

}  // namespace kvlift::fused
