#include "rewrite/judge/shared_extents.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/node_builder.h"
#include "ir/subgraphs.h"

namespace kvlift::internal {
namespace {

using sym::Expr;
using sym::Kind;

class Surveyor {
 public:
  Surveyor(const Analysis& a, const std::vector<PlannedCache>& caches)
      : a_(a), caches_(caches), graph_(*a.graph), forms_(*a.forms), pool_(forms_.pool()) {}

  FoundExtents Run() {
    growing_ = HasGrowing(a_);
    FindBatch();
    if (!growing_) return std::move(out_);
    NameLengths();
    for (const AnalysedAttention& attention : a_.attention) {
      if (attention.site) CollectKeyLengthMasks(attention.site->mask.keep);
    }
    const Expr past = pool_.Dim(PastSymbol());
    for (const auto& [input, axis] : extents_.key_length_masks) {
      const Expr width = forms_.Of(input).shape[axis];
      if (width->kind() == Kind::kDim && !extents_.normal.dims.contains(width->dim())) {
        extents_.lengths.push_back(width->dim());
        extents_.normal.dims[width->dim()] = pool_.Add(past, extents_.new_length);
      }
    }
    NameWidthsOfOnes();
    return std::move(out_);
  }

 private:
  void NameLengths() {
    std::vector<sym::DimSymbol>& lengths = extents_.lengths;
    for (const PlannedCache& cache : caches_) {
      const auto past = cache.rows_of_past(pool_);
      if (!past) continue;
      const auto& [name, rows] = *past;
      if (std::find(lengths.begin(), lengths.end(), name->dim()) == lengths.end()) {
        lengths.push_back(name->dim());
      }
      extents_.normal.dims[name->dim()] = rows;
    }
  }

  // Names the widths of masks of ones as the number of keys of each sequence by itself.
  void NameWidthsOfOnes() {
    for (ValueId mask : WidthsOfOnes(a_)) {
      const sym::DimSymbol width = forms_.Of(mask).shape[1]->dim();
      const Expr total = pool_.Add(pool_.Dim(PastSymbol()), extents_.new_length);
      if (extents_.normal.dims.try_emplace(width, total).second) extents_.lengths.push_back(width);
    }
  }

  void FindBatch() {
    const CacheUpdate* first = nullptr;
    for (const CacheUpdate& update : a_.updates) {
      if (growing_ && !update.grows()) continue;
      if (first == nullptr) first = &update;
      // A symbol for the number of new rows is preferred to a sum that contains the past length.
      const bool plain = update.new_length->kind() != Kind::kSum;
      if (extents_.new_length == nullptr || (plain && extents_.new_length->kind() == Kind::kSum)) {
        extents_.new_length = update.new_length;
      }
    }
    extents_.batch_source = first->pair.past;
    const sym::Form past = forms_.Of(first->pair.past);
    extents_.batch = past.shape[first->layout.find('B')];
    if (first->layout.size() > 3) return;
    // The first axis of a cache of rank 3 may count heads, too: an input of tokens gives the batch.
    for (ValueId v : graph_.graph_inputs()) {
      const sym::Form& form = forms_.Of(v);
      if (!form.known_rank || form.shape.size() < 2) continue;
      if (!IsIntegerType(graph_.type(v).elem_type)) continue;
      extents_.batch_source = v;
      extents_.batch = form.shape[0];
      return;
    }
  }

  // Returns true if an input of this width is not as wide as the keys: the width is the number of
  // new tokens or of sequences, or the mask compares the key's index with it before it reads the
  // input.
  bool IsGuarded(Expr keep, Expr width) const {
    if (width == extents_.new_length || width == extents_.batch) return true;
    if (width->kind() != Kind::kDim) return false;
    std::vector<Expr> open = {keep};
    absl::flat_hash_set<Expr> seen = {keep};
    while (!open.empty()) {
      const Expr e = open.back();
      open.pop_back();
      const std::vector<sym::DimSymbol> dims = sym::DimsOf(e);
      const bool compares = e->kind() == Kind::kLe && sym::ContainsIndex(e, 3) &&
                            !sym::ContainsIndex(e, 2) && sym::LoadsOf(e).empty();
      if (compares && dims.size() == 1 && dims[0] == width->dim()) return true;
      std::vector<Expr> inner(e->args().begin(), e->args().end());
      for (const sym::Term& term : e->terms()) {
        inner.insert(inner.end(), term.atoms.begin(), term.atoms.end());
      }
      for (Expr x : inner) {
        if (seen.insert(x).second) open.push_back(x);
      }
    }
    return false;
  }

  // Adds the inputs that a mask predicate reads at the key's index: they are as wide as the keys.
  void CollectKeyLengthMasks(Expr keep) {
    for (Expr load : sym::LoadsOf(keep)) {
      if (!graph_.is_graph_input(load->source())) continue;
      const sym::Form& form = forms_.Of(load->source());
      const int32_t type = graph_.type(load->source()).elem_type;
      if (ElementBits(type) < 8 || (IsFloatType(type) && ElementBits(type) == 8)) {
        out_.refusal = MakeFinding(
            "KV216",
            fmt::format("needs a mask of a type that Slice takes, found {}", ElementTypeName(type)),
            graph_, {}, {load->source()});
        return;
      }
      for (size_t k = 0; k < load->args().size(); ++k) {
        if (load->args()[k] == pool_.Index(3) && !IsGuarded(keep, form.shape[k])) {
          extents_.key_length_masks.insert({load->source(), static_cast<int>(k)});
        }
      }
    }
  }

  const Analysis& a_;
  const std::vector<PlannedCache>& caches_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  bool growing_ = false;
  FoundExtents out_;
  SharedExtents& extents_ = out_.extents;
};

}  // namespace

FoundExtents FindSharedExtents(const Analysis& a, const std::vector<PlannedCache>& caches) {
  return Surveyor(a, caches).Run();
}

std::optional<DerivedIndex> InputOfAllTokens(const Analysis& a, const SharedExtents& extents) {
  const auto& masks = extents.key_length_masks;
  if (!masks.empty()) return DerivedIndex{masks.begin()->first, masks.begin()->second};
  for (const std::string& name : a.normalised.all_ones) {
    if (const ValueId mask = a.graph->Find(name); mask != kNoValue) return DerivedIndex{mask, 1};
  }
  sym::Pool& pool = a.forms->pool();
  const Expr total = pool.Add(pool.Dim(PastSymbol()), extents.new_length);
  // The graph may say by a broadcast that a size of another name is that total.
  const auto is_total = [&](Expr size) {
    const Expr known = pool.Substitute(size, extents.normal, {});
    if (known == total) return true;
    const Expr equal = pool.Eq(known, total, {});
    return absl::c_any_of(a.forms->assumptions(), [&](const sym::FormAssumption& taken) {
      return taken.predicate != nullptr &&
             pool.Substitute(taken.predicate, extents.normal, {}) == equal;
    });
  };
  for (ValueId v : a.graph->graph_inputs()) {
    const sym::Form& form = a.forms->Of(v);
    for (size_t k = 0; form.known_rank && k < form.shape.size(); ++k) {
      if (is_total(form.shape[k])) return DerivedIndex{v, static_cast<int>(k)};
    }
  }
  return std::nullopt;
}

std::vector<ValueId> WidthsOfOnes(const Analysis& a) {
  std::vector<ValueId> found;
  for (const std::string& name : a.normalised.all_ones) {
    const ValueId mask = a.graph->Find(name);
    const sym::Form form = mask == kNoValue ? sym::Form() : a.forms->Of(mask);
    if (!form.known_rank || form.shape.size() != 2 || form.shape[1]->kind() != Kind::kDim) continue;
    const auto uses = a.graph->uses(mask);
    const bool of_shape = std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.kind == Use::Kind::kNodeInput && a.graph->Is(use.node, "Shape");
    });
    if (of_shape && !uses.empty()) found.push_back(mask);
  }
  return found;
}

std::optional<Finding> OtherInputOfKeyLength(const PlanBasis& s) {
  const std::vector<ValueId> ones = WidthsOfOnes(s.a);
  const auto is_cache = [&](ValueId v) {
    return std::any_of(s.a.updates.begin(), s.a.updates.end(), [&](const CacheUpdate& u) {
      return u.pair.past == v || u.pair.present == v;
    });
  };
  for (ValueId v : s.graph.graph_inputs()) {
    const sym::Form& form = s.forms.Of(v);
    if (is_cache(v) || s.IsKeyLengthMask(v) || absl::c_linear_search(ones, v) || !form.known_rank ||
        s.graph.uses(v).empty()) {
      continue;
    }
    for (Expr dim : form.shape) {
      for (const sym::DimSymbol& length : s.extents.lengths) {
        if (!sym::ContainsDim(dim, length)) continue;
        return MakeFinding("KV215",
                           fmt::format("{} is as long as the past, and no attention reads it as a "
                                       "mask",
                                       s.graph.name(v)),
                           s.graph, {}, {v});
      }
    }
  }
  return std::nullopt;
}

std::variant<PlannedIndex, Finding> JudgeIndex(const PlanBasis& s) {
  if (!s.growing && !s.fifos) return PlannedIndex(NoIndex{});
  const NodeId node = s.a.updates.front().node;
  if (const absl::Status length = s.probe.Dim(s.extents.new_length); !length.ok()) {
    return MakeFinding("KV215",
                       fmt::format("the number of new tokens: {}", std::string(length.message())),
                       s.graph, {node});
  }
  if (s.derived) {
    const bool windows =
        std::all_of(s.a.updates.begin(), s.a.updates.end(),
                    [](const auto& update) { return !update.grows() || update.window(); });
    if (windows) {
      return MakeFinding("KV219",
                         "needs a cache of all tokens, whose mask tells the past's length, found "
                         "windows of the newest tokens alone",
                         s.graph, {node});
    }
    const std::optional<DerivedIndex> source = InputOfAllTokens(s.a, s.extents);
    if (source) return PlannedIndex(*source);
    return MakeFinding("KV219",
                       "needs a mask input as wide as the keys to derive the past's length from",
                       s.graph, {node});
  }
  IndexInputs inputs;
  auto taken = NamesIn(s.graph.proto());
  inputs.write_indices = FreeName("write_indices", &taken);
  if (s.options.target == Target::kGenaiStatic) {
    inputs.nonpad_kv_seqlen = FreeName("nonpad_kv_seqlen", &taken);
  }
  if (s.options.tree_mask) inputs.tree_mask = FreeName("tree_mask", &taken);
  return PlannedIndex(std::move(inputs));
}

}  // namespace kvlift::internal
