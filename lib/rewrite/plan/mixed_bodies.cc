// The part of CrossTokenFinder that reads the bodies of If, Loop and Scan, in which rows may be
// mixed.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ir/operators/operator_changes.h"
#include "ir/operators/operator_traits.h"
#include "ir/subgraphs.h"
#include "rewrite/plan/cross_token_finder.h"

namespace kvlift::internal {
namespace {

using onnx::NodeProto;

// Tokens or sequences may lie on other axes than the first two.
constexpr int kUnknownRank = -1;

// The ranks of values that hold rows of tokens or sequences, on their first two axes.
using Rows = absl::flat_hash_map<std::string, int>;

// Returns the rank of the node's result if it leaves each row of tokens and sequences where it is
// and computes it from that row alone; nullopt if that is not plain to see.
std::optional<int> RankOfRows(const NodeProto& node, const Rows& rows) {
  const auto rank_of = [&](int k) {
    const auto it = k < node.input_size() ? rows.find(node.input(k)) : rows.end();
    return it == rows.end() ? std::nullopt : std::make_optional(it->second);
  };
  if (HasBody(node) || node.output_size() != 1) return std::nullopt;
  const std::string& op = node.op_type();
  if (op == "Identity") return rank_of(0);
  if (FindElementwise(node) != nullptr) {
    std::optional<int> rank;
    for (int k = 0; k < node.input_size(); ++k) {
      const auto own = rank_of(k);
      // Rows of operands of other ranks, or of axes in another order, would meet other rows.
      if (own && rank && (*own != *rank || *own == kUnknownRank)) return std::nullopt;
      if (own) rank = own;
    }
    return rank;
  }
  const auto first = rank_of(0);
  if (!first || rank_of(1)) return std::nullopt;
  if (IsProductOfPackedWeights(op) && node.domain() == "com.microsoft") return first;
  if (!IsDefaultDomain(node.domain())) return std::nullopt;
  if (op == "Transpose") {
    const std::vector<int64_t> perm = IntsAttribute(node, "perm");
    return !perm.empty() && perm[0] == 0 ? std::make_optional(kUnknownRank) : std::nullopt;
  }
  if (*first < 3) return std::nullopt;
  if (op == "MatMul") return first;
  if (op == "Gather" && IntAttribute(node, "axis", 0) >= 2) return kUnknownRank;
  return std::nullopt;
}

}  // namespace

// Returns true if a body of the node may compute a row of a token or sequence from other rows than
// its own.
bool CrossTokenFinder::BodiesMix(NodeId n) {
  const NodeProto& node = graph_.node(n);
  if (!HasBody(node)) return false;
  Rows rows;
  const auto note = [&](ValueId v) {
    if (v == kNoValue || graph_.constant(v) != nullptr) return;
    const sym::Form form = forms_.Of(v);
    const bool holds =
        !form.known_rank ||
        std::any_of(form.shape.begin(), form.shape.end(), [&](sym::Expr extent) {
          const std::vector<sym::DimSymbol> dims = sym::DimsOf(extent);
          return std::any_of(dims.begin(), dims.end(),
                             [&](const sym::DimSymbol& dim) { return rows_.contains(dim); });
        });
    const int rank = form.known_rank ? static_cast<int>(form.shape.size()) : kUnknownRank;
    if (holds) rows[graph_.name(v)] = rank;
  };
  for (ValueId v : graph_.captures(n)) note(v);
  if (!graph_.Is(n, "If")) {
    for (ValueId v : graph_.inputs(n)) note(v);
    return !rows.empty();
  }
  const auto scopes = CollectScopes(node);
  if (!scopes.ok()) return true;
  for (const Scope& scope : *scopes) {
    for (const NodeProto& inner : scope.graph->node()) {
      const bool reads = HasBody(inner) ||
                         std::any_of(inner.input().begin(), inner.input().end(),
                                     [&](const std::string& name) { return rows.contains(name); });
      if (!reads) continue;
      if (rows.empty()) return false;
      const auto rank = RankOfRows(inner, rows);
      if (!rank) return true;
      rows[inner.output(0)] = *rank;
    }
  }
  return false;
}

}  // namespace kvlift::internal
