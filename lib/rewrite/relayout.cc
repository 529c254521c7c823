#include "rewrite/relayout.h"

#include <algorithm>
#include <vector>

#include "base/overloaded.h"
#include "fmt/format.h"
#include "rewrite/match.h"

namespace kvlift::internal {

using sym::Expr;
using sym::Kind;

namespace {

constexpr char kHeadsFirst[] = "BNSD";

// Returns the axes of `from` in the order of `to`; both have the same letters.
std::vector<int64_t> PermOf(std::string_view from, std::string_view to) {
  std::vector<int64_t> perm;
  for (char letter : to) perm.push_back(static_cast<int64_t>(from.find(letter)));
  return perm;
}

std::string Permute(PlanState& s, const std::string& value, std::string_view from,
                    std::string_view to) {
  if (from == to) return value;
  return s.nodes.Add("Transpose", {value}, "placed", {MakeAttribute("perm", PermOf(from, to))});
}

// Returns [B, S, width] from a layout of four axes.
std::string Join(PlanState& s, const std::string& value, std::string_view from, int64_t width) {
  const std::string permuted = Permute(s, value, from, "BSND");
  return s.nodes.Add("Reshape", {permuted, s.nodes.Int64s({0, 0, width})}, "folded");
}

bool IsPermutation(const std::string& layout) {
  return layout.size() == 4 && layout[0] == 'B' &&
         std::is_permutation(layout.begin(), layout.end(), kHeadsFirst);
}

int64_t Extent(const PlanState& s, const CacheUpdate& update, char letter) {
  const Expr extent = s.forms.Of(update.pair.past).shape[update.layout.find(letter)];
  return extent->kind() == Kind::kInteger ? extent->value() : 0;
}

// Returns true if the rows of such a cache may be given another layout.
bool MayHaveOtherLayout(const CacheUpdate& update) {
  return std::visit(
      Overloaded{[](const AppendAll& all) { return all.reordered_past == nullptr; },
                 [](const KeepLast&) { return false; }, [](const WriteAt&) { return true; },
                 [](const WriteAround&) { return true; }, [](const Fifo&) { return false; }},
      update.how);
}

// Returns true if every attention over the cache reads all its heads and all their elements.
bool ReadWhole(const PlanState& s, const PlannedCache& update) {
  const auto whole = [&](int cache, const CacheView& view, int64_t size) {
    return &s.caches[cache] != &update ||
           (view.offset == 0 && view.heads == Extent(s, update, 'N') &&
            size == Extent(s, update, 'D'));
  };
  return std::all_of(s.a.attention.begin(), s.a.attention.end(), [&](const auto& attention) {
    return !attention.site ||
           (whole(attention.site->key.cache, attention.site->key.view, attention.site->head_dim) &&
            whole(attention.site->value.cache, attention.site->value.view,
                  attention.site->v_head_dim));
  });
}

}  // namespace

Placement PlacementOf(const ConvertOptions& options, const CacheUpdate& update) {
  const bool heads = update.layout.find('N') != std::string::npos;
  if (options.layout == Layout::kBnsd && update.layout != kHeadsFirst) {
    return {kHeadsFirst, 2, true};
  }
  if (options.layout == Layout::kHeadsInLastAxis && heads) return {kHeadsInLastAxis, 1, true};
  return {update.layout, update.axis, false};
}

std::optional<Finding> JudgeLayouts(const PlanState& s) {
  if (s.options.target == Target::kTensorRt && s.growing && !s.options.max_seq_len) {
    return MakeFinding("KV229", "needs a fixed capacity for TensorRT: give --max-seq-len", s.graph,
                       {s.a.updates.front().node});
  }
  if (s.options.layout == Layout::kKeep) return std::nullopt;
  for (const PlannedCache& update : s.caches) {
    const bool joined = s.options.layout == Layout::kHeadsInLastAxis;
    if ((joined && update.layout == "BSD") ||
        (!PlacementOf(s.options, update).moved && IsPermutation(update.layout)))
      continue;
    const bool plain = IsPermutation(update.layout) && MayHaveOtherLayout(update) &&
                       Extent(s, update, 'N') > 0 && Extent(s, update, 'D') > 0 &&
                       (!joined || ReadWhole(s, update));
    if (plain) continue;
    return MakeFinding("KV229",
                       fmt::format("needs caches with an axis of sequences in front, one of heads "
                                   "and one of their elements to give them another layout, found "
                                   "{}",
                                   update.layout),
                       s.graph, {update.node}, {update.pair.past});
  }
  return std::nullopt;
}

std::string JoinHeads(PlanState& s, const std::string& value, int64_t heads, int64_t size) {
  return Join(s, value, kHeadsFirst, heads * size);
}

std::string ToTargetLayout(PlanState& s, const CacheUpdate& update, const std::string& value) {
  const Placement place = PlacementOf(s.options, update);
  if (!place.moved) return value;
  if (place.layout == kHeadsFirst) return Permute(s, value, update.layout, kHeadsFirst);
  return Join(s, value, update.layout, Extent(s, update, 'N') * Extent(s, update, 'D'));
}

std::string ToSourceLayout(PlanState& s, const CacheUpdate& update, const std::string& value) {
  const Placement place = PlacementOf(s.options, update);
  if (!place.moved) return value;
  if (place.layout == kHeadsFirst) return Permute(s, value, kHeadsFirst, update.layout);
  const std::string shape = s.nodes.Int64s({0, 0, Extent(s, update, 'N'), Extent(s, update, 'D')});
  return Permute(s, s.nodes.Add("Reshape", {value, shape}, "heads"), "BSND", update.layout);
}

ValueId FindRowsInTargetLayout(PlanState& s, const CacheUpdate& update) {
  const Placement place = PlacementOf(s.options, update);
  if (!place.moved) return kNoValue;
  sym::Pool& pool = s.pool;
  std::vector<Expr> rows = s.forms.Of(update.pair.past).shape;
  rows[update.axis] = update.new_length;
  const auto extent = [&](char letter) { return rows[update.layout.find(letter)]; };
  std::vector<Expr> shape;
  std::vector<Expr> index(4);  // the indices of B, N, S, D
  if (place.layout == kHeadsFirst) {
    for (int k = 0; k < 4; ++k) {
      shape.push_back(extent(kHeadsFirst[k]));
      index[k] = pool.Index(k);
    }
  } else {
    shape = {extent('B'), extent('S'), pool.Mul(extent('N'), extent('D'))};
    const sym::Facts facts{shape};
    index = std::vector<Expr>{pool.Index(0), pool.FloorDiv(pool.Index(2), extent('D'), facts),
                              pool.Index(1), pool.Mod(pool.Index(2), extent('D'), facts)};
  }
  sym::Pool::Substitution at;
  for (char letter : update.layout) {
    at.indices.push_back(index[std::string_view(kHeadsFirst).find(letter)]);
  }
  const Expr element = pool.Substitute(update.update_element, at, sym::Facts{shape});
  return FindValue(s.forms, update.pair.present, element, shape, std::nullopt,
                   s.forms.ElementType(update.pair.past));
}

onnx::TypeProto TypeInTargetLayout(const PlanState& s, const CacheUpdate& update,
                                   const onnx::TypeProto& type) {
  const Placement place = PlacementOf(s.options, update);
  if (!place.moved) return type;
  onnx::TypeProto result = type;
  auto* shape = result.mutable_tensor_type()->mutable_shape();
  shape->clear_dim();
  const auto dim = [&](char letter) {
    return type.tensor_type().shape().dim(static_cast<int>(update.layout.find(letter)));
  };
  if (place.layout == kHeadsFirst) {
    for (char letter : std::string_view(kHeadsFirst)) *shape->add_dim() = dim(letter);
    return result;
  }
  *shape->add_dim() = dim('B');
  *shape->add_dim() = dim('S');
  shape->add_dim()->set_dim_value(Extent(s, update, 'N') * Extent(s, update, 'D'));
  return result;
}

}  // namespace kvlift::internal
