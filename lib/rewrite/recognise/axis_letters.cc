#include "rewrite/recognise/axis_letters.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// Returns the first extents of integer inputs, such as token ids: they count sequences. Without
// such inputs, embeddings [B, S, H] count them. Where `past` has an extent with a name on an axis
// other than `rows`, extents that are numbers are left out: an axis of heads may have the same
// number.
absl::flat_hash_set<Expr> BatchDims(sym::Forms& forms, ValueId past, int rows) {
  absl::flat_hash_set<Expr> dims;
  const Graph& graph = forms.graph();
  const auto take = [&](const auto& counts) {
    for (ValueId v : graph.graph_inputs()) {
      const sym::Form& form = forms.Of(v);
      if (v != past && form.known_rank && counts(v, form)) dims.insert(form.shape.front());
    }
  };
  take([&](ValueId v, const sym::Form& form) {
    return form.shape.size() >= 2 && IsIntegerType(graph.type(v).elem_type);
  });
  if (dims.empty()) take([](ValueId, const sym::Form& form) { return form.shape.size() == 3; });
  const std::vector<Expr> shape = forms.Of(past).shape;
  const auto is_named = [](Expr extent) { return extent->kind() != Kind::kInteger; };
  bool named = false;
  for (int k = 0; k < static_cast<int>(shape.size()); ++k) {
    named = named || (k != rows && is_named(shape[static_cast<size_t>(k)]));
  }
  if (named) absl::erase_if(dims, [&](Expr extent) { return !is_named(extent); });
  return dims;
}

// Returns true if places along an axis hold data of different origin, such as keys and values.
bool TellsApart(Expr element, int axis) {
  if (element->kind() != Kind::kSelect) return false;
  return sym::ContainsIndex(element->args()[0], axis) || TellsApart(element->args()[1], axis) ||
         TellsApart(element->args()[2], axis);
}

// Returns the axis whose extent is the batch of the tokens; if extents do not decide, the first
// axis other than `axis`.
int BatchAxis(sym::Forms& forms, const CachePair& pair, int axis) {
  const std::vector<Expr> shape = forms.Of(pair.past).shape;
  const int rank = static_cast<int>(shape.size());
  const int first = axis == 0 ? 1 : 0;
  const absl::flat_hash_set<Expr> batch = BatchDims(forms, pair.past, axis);
  if (rank <= 4) {
    if (batch.contains(shape[first])) return first;
    int other = -1, axes = 0;
    for (int k = 0; k < rank; ++k) {
      if (k == axis || !batch.contains(shape[k])) continue;
      other = k;
      ++axes;
    }
    return axes == 1 ? other : first;
  }
  const sym::Form present = forms.Of(pair.present);
  int found = -1;
  for (int k = 0; k < rank; ++k) {
    if (k == axis || !batch.contains(shape[k])) continue;
    // An axis of caches may have the extent of the batch, too, but data of different origin is
    // joined along it.
    if (!present.known_rank || !TellsApart(present.element, k)) return k;
    if (found < 0) found = k;
  }
  if (found >= 0) return found;
  for (int k = 0; k < rank; ++k) {
    if (k != axis && shape[k]->kind() != Kind::kInteger) return k;
  }
  return first;
}

// Returns true if a select in e compares the index of this axis with a number, and chooses between
// elements of different tensors by it.
bool ChoosesTensors(sym::Pool& pool, Expr e, int axis) {
  while (e->kind() == Kind::kSelect) {
    const Expr condition = e->args()[0];
    const Expr bound = condition->kind() == Kind::kNot ? condition->args()[0] : condition;
    if (bound->kind() == Kind::kLe || bound->kind() == Kind::kEq) {
      const auto linear = sym::LinearIn(pool, bound->args()[0], pool.Index(axis));
      const bool compares =
          linear && linear->coefficient != 0 && linear->rest->kind() == Kind::kInteger;
      if (compares) return sym::SourcesOf(e->args()[1]) != sym::SourcesOf(e->args()[2]);
    }
    if (ChoosesTensors(pool, e->args()[1], axis)) return true;
    e = e->args()[2];
  }
  return false;
}

}  // namespace

std::string LayoutOf(sym::Forms& forms, const CachePair& pair, int axis) {
  const sym::Form form = forms.Of(pair.past);
  constexpr int kMaxRank = 6;
  const int rank = form.known_rank ? static_cast<int>(form.shape.size()) : 0;
  if (rank < 3 || rank > kMaxRank || axis < 0 || axis >= rank) return {};
  std::string letters(rank, '-');
  letters[axis] = 'S';
  letters[BatchAxis(forms, pair, axis)] = 'B';
  std::string names = "DN";
  for (int k = rank - 1; k >= 0; --k) {
    if (letters[k] != '-') continue;
    if (names.empty()) {
      const bool two = form.shape[k]->is_integer(2) && letters.find('K') == std::string::npos;
      letters[k] = two ? 'K' : letters.find('L') == std::string::npos ? 'L' : 'J';
    } else {
      letters[k] = names.front();
      names.erase(0, 1);
    }
  }
  return letters;
}

std::string LayoutOfRows(sym::Forms& forms, const CachePair& pair, int axis, Expr rows) {
  std::string layout = LayoutOf(forms, pair, axis);
  size_t heads = layout.find('N'), batch = layout.find('B');
  if (heads == std::string::npos || batch == std::string::npos ||
      FirstPackedAxis(layout) != std::string::npos) {
    return layout;
  }
  const std::vector<Expr> shape = forms.Of(pair.past).shape;
  const auto chooses_tensors = [&](size_t k) {
    return ChoosesTensors(forms.pool(), rows, static_cast<int>(k));
  };
  // An axis of layers in front may be as long as the batch behind it.
  if (batch < heads && shape[batch] == shape[heads] && chooses_tensors(batch)) {
    std::swap(layout[batch], layout[heads]);
    std::swap(batch, heads);
  }
  if (heads > batch || !chooses_tensors(heads)) return layout;
  layout[heads] = shape[heads]->is_integer(2) ? 'K' : 'L';
  return layout;
}

bool CountsSequences(sym::Forms& forms, const CacheUpdate& update) {
  const size_t batch = update.layout.find('B');
  if (batch == std::string::npos) return false;
  const Expr sequences = forms.Of(update.pair.past).shape[batch];
  return sequences->kind() == Kind::kDim && sym::ContainsDim(update.new_length, sequences->dim());
}

size_t FirstPackedAxis(const std::string& layout) { return layout.find_first_of("KLJ"); }

}  // namespace kvlift
