#include "rewrite/layout.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// What integer inputs have in front: the batch of the tokens.
absl::flat_hash_set<Expr> BatchDims(sym::Forms& forms) {
  absl::flat_hash_set<Expr> dims;
  const Graph& graph = forms.graph();
  for (ValueId v : graph.graph_inputs()) {
    const sym::Form& form = forms.Of(v);
    if (!form.known_rank || form.shape.size() < 2 || !IsIntegerType(graph.type(v).elem_type)) {
      continue;
    }
    dims.insert(form.shape.front());
  }
  return dims;
}

int BatchAxis(sym::Forms& forms, const std::vector<Expr>& shape, int axis) {
  const int rank = static_cast<int>(shape.size());
  const int first = axis == 0 ? 1 : 0;
  if (rank <= 4) return first;
  const absl::flat_hash_set<Expr> batch = BatchDims(forms);
  for (int k = 0; k < rank; ++k) {
    if (k != axis && batch.contains(shape[k])) return k;
  }
  for (int k = 0; k < rank; ++k) {
    if (k != axis && shape[k]->kind() != Kind::kInteger) return k;
  }
  return first;
}

}  // namespace

std::string LayoutOf(sym::Forms& forms, ValueId past, int axis) {
  const sym::Form form = forms.Of(past);
  constexpr int kMaxRank = 6;
  const int rank = form.known_rank ? static_cast<int>(form.shape.size()) : 0;
  if (rank < 3 || rank > kMaxRank || axis < 0 || axis >= rank) return {};
  std::string letters(rank, '-');
  letters[axis] = 'S';
  letters[BatchAxis(forms, form.shape, axis)] = 'B';
  std::string names = "DN";
  for (int k = rank - 1; k >= 0; --k) {
    if (letters[k] != '-') continue;
    if (names.empty()) {
      const bool pair = form.shape[k]->is_integer(2) && letters.find('K') == std::string::npos;
      letters[k] = pair ? 'K' : letters.find('L') == std::string::npos ? 'L' : 'J';
    } else {
      letters[k] = names.front();
      names.erase(0, 1);
    }
  }
  return letters;
}

size_t FirstLane(const std::string& layout) { return layout.find_first_of("KLJ"); }

}  // namespace kvlift
