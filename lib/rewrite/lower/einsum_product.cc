// An Einsum of two computed tensors that is a batched matrix product becomes Transpose and MatMul,
// which attention rules read: "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd".
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "rewrite/lower/fused_lowering.h"

namespace kvlift::fused {
namespace {

struct Equation {
  std::string a, b, out;
};

// Reads an explicit equation of two operands, of letters only and with no letter twice in one term.
bool Read(std::string text, Equation* equation) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || arrow < comma) return false;
  *equation = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
               text.substr(arrow + 2)};
  for (const std::string* term : {&equation->a, &equation->b, &equation->out}) {
    std::string sorted = *term;
    std::sort(sorted.begin(), sorted.end());
    const bool letters =
        std::all_of(sorted.begin(), sorted.end(), [](char c) { return absl::ascii_isalpha(c); });
    if (!letters || std::unique(sorted.begin(), sorted.end()) != sorted.end()) return false;
  }
  return true;
}

bool Has(const std::string& term, char letter) { return term.find(letter) != std::string::npos; }

// The letters of a product of matrices [row, inner] and [inner, column], one per batch index.
struct Letters {
  std::string batch, row, inner, column;
};

Letters Sort(const Equation& e) {
  Letters letters;
  for (char c : e.out) {
    if (Has(e.a, c) && Has(e.b, c)) {
      letters.batch += c;
    } else {
      (Has(e.a, c) ? letters.row : letters.column) += c;
    }
  }
  for (char c : e.a) {
    if (!Has(e.out, c)) letters.inner += c;
  }
  return letters;
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
bool MayDiffer(Lowering& l, NodeId n, const Equation& e, char letter) {
  const sym::Form &a = l.Form(n, 0), &b = l.Form(n, 1);
  if (!a.known_rank || !b.known_rank || a.shape.size() != e.a.size() ||
      b.shape.size() != e.b.size()) {
    return false;
  }
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
  Equation e;
  if (!Read(StringAttribute(graph.node(n), "equation", ""), &e)) return false;
  const Letters of = Sort(e);
  const bool product = !of.batch.empty() && of.row.size() == 1 && of.column.size() == 1 &&
                       of.inner.size() == 1 && Has(e.b, of.inner[0]) &&
                       e.a.size() == of.batch.size() + 2 && e.b.size() == e.a.size();
  if (!product || MayDiffer(l, n, e, of.inner[0])) return false;
  l.Scope(n);
  l.patch().remove_nodes.insert(n);
  const std::string a = Ordered(l, l.in(n, 0), e.a, of.batch + of.row + of.inner);
  const std::string b = Ordered(l, l.in(n, 1), e.b, of.batch + of.inner + of.column);
  const std::string made = of.batch + of.row + of.column;
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
