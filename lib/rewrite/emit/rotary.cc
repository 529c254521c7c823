#include "rewrite/emit/rotary.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/node_builder.h"
#include "ir/patch.h"
#include "sym/forms/reals.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Facts;

// The most nodes between a rotation and its cache or attention; they only change the shape.
constexpr int kMostSteps = 4;

struct Rotation {
  NodeId node = kNoNode;
  ValueId x = kNoValue, cosine = kNoValue, sine = kNoValue;
  int64_t half = 0;
  bool one_for_all = false;  // the tables have a batch of 1, x may have a larger one
};

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), forms_(graph), pool_(forms_.pool()) {}

  std::optional<Rotation> Find(NodeId n) {
    if (!graph_.Is(n, "Add")) return std::nullopt;
    const auto sums = graph_.inputs(n);
    for (const auto& [left, right] : {std::pair(sums[0], sums[1]), std::pair(sums[1], sums[0])}) {
      const NodeId straight = ProductAt(left), turned = ProductAt(right);
      if (straight == kNoNode || turned == kNoNode) continue;
      const auto a = graph_.inputs(straight), b = graph_.inputs(turned);
      for (int k = 0; k < 2; ++k) {
        for (int j = 0; j < 2; ++j) {
          Rotation r{n, a[k], a[1 - k], b[1 - j]};
          if (IsRotation(&r, b[j])) return r;
        }
      }
    }
    return std::nullopt;
  }

 private:
  NodeId ProductAt(ValueId v) const {
    const NodeId n = v == kNoValue ? kNoNode : graph_.producer(v);
    return n != kNoNode && graph_.Is(n, "Mul") ? n : kNoNode;
  }

  bool IsRotation(Rotation* r, ValueId turned) {
    const sym::Form x = forms_.Of(r->x);
    if (!x.known_rank || x.shape.size() != 4 || forms_.ElementType(r->x) != TensorProto::FLOAT) {
      return false;
    }
    const Expr size = x.shape[3];
    if (size->kind() != sym::Kind::kInteger || size->value() < 2 || size->value() % 2 != 0) {
      return false;
    }
    r->half = size->value() / 2;
    const sym::Form of_turned = forms_.Of(turned);
    return of_turned.known_rank && of_turned.shape == x.shape && IsTable(r, r->cosine) &&
           IsTable(r, r->sine) && IsTurned(*r, turned);
  }

  // Returns true if the table is [B or 1, 1, S, D] and its second half on D repeats the first.
  bool IsTable(Rotation* r, ValueId table) {
    const sym::Form form = forms_.Of(table), x = forms_.Of(r->x);
    if (!form.known_rank || form.shape.size() != 4 || !form.shape[1]->is_integer(1) ||
        form.shape[2] != x.shape[2] || form.shape[3] != x.shape[3]) {
      return false;
    }
    if (form.shape[0] != x.shape[0]) {
      if (!form.shape[0]->is_integer(1)) return false;
      r->one_for_all = true;
    }
    const Facts facts = FirstHalf(*r, form);
    const std::vector<Expr> at = Place(0), behind = Place(r->half);
    const Expr first = sym::RealElement(forms_, table, at, facts, {});
    return first != nullptr && first == sym::RealElement(forms_, table, behind, facts, {});
  }

  // Returns true if `turned` is -x[d + D/2] for d < D/2, and x[d - D/2] otherwise.
  bool IsTurned(const Rotation& r, ValueId turned) {
    const sym::Form form = forms_.Of(r.x);
    const Facts facts = FirstHalf(r, form);
    const std::vector<Expr> at = Place(0), behind = Place(r.half);
    const std::vector<ValueId> stops = sym::SourcesOf(form.element);
    const auto element = [&](ValueId v, absl::Span<const Expr> place) {
      return sym::RealElement(forms_, v, place, facts, stops);
    };
    const Expr second = element(r.x, behind), first = element(r.x, at);
    return first != nullptr && second != nullptr && element(turned, at) == pool_.Neg(second) &&
           element(turned, behind) == first;
  }

  Facts FirstHalf(const Rotation& r, const sym::Form& form) {
    Facts facts{form.shape};
    facts.extents[3] = pool_.Integer(r.half);
    return facts;
  }

  std::vector<Expr> Place(int64_t offset) {
    return {pool_.Index(0), pool_.Index(1), pool_.Index(2),
            pool_.Add(pool_.Index(3), pool_.Integer(offset))};
  }

  const Graph& graph_;
  sym::Forms forms_;
  sym::Pool& pool_;
};

// The scopes of names for rotations, by where their results go: "layers.0/key", "layers.0/query".
class Places {
 public:
  Places(const Graph& graph, const Manifest& relation) : graph_(graph) {
    for (const ManifestCache& cache : relation.caches) {
      layers_[graph.Find(cache.output)] = fmt::format("layers.{}", cache.layer);
    }
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      if (graph.Is(n, "TensorScatter")) {
        const auto layer = layers_.find(graph.outputs(n)[0]);
        if (layer != layers_.end()) Mark(graph.inputs(n)[1], layer->second + "/key");
      } else if (graph.Is(n, "Attention")) {
        const std::string layer = LayerOf(graph.inputs(n)[1]);
        if (!layer.empty()) Mark(graph.inputs(n)[0], layer + "/query");
      }
    }
  }

  std::string Of(ValueId v) const {
    const auto it = scopes_.find(v);
    return it == scopes_.end() ? "shared" : it->second;
  }

 private:
  // Gives the scope to v and to the first operands that it is computed from, over a few nodes.
  void Mark(ValueId v, const std::string& scope) {
    for (int k = 0; k < kMostSteps && v != kNoValue; ++k) {
      scopes_.emplace(v, scope);
      v = Before(v);
    }
  }

  std::string LayerOf(ValueId key) const {
    for (int k = 0; k < kMostSteps && key != kNoValue; ++k) {
      if (const auto it = layers_.find(key); it != layers_.end()) return it->second;
      key = Before(key);
    }
    return "";
  }

  ValueId Before(ValueId v) const {
    const NodeId n = graph_.producer(v);
    return n == kNoNode || graph_.inputs(n).empty() ? kNoValue : graph_.inputs(n)[0];
  }

  const Graph& graph_;
  absl::flat_hash_map<ValueId, std::string> layers_;  // by present
  absl::flat_hash_map<ValueId, std::string> scopes_;
};

class Emitter {
 public:
  Emitter(const Graph& graph, const Manifest& relation)
      : graph_(graph), places_(graph, relation), nodes_(graph) {}

  void Emit(const Rotation& r) {
    const std::string cosine = Half(r, r.cosine, "cos"), sine = Half(r, r.sine, "sin");
    const ValueId y = graph_.outputs(r.node)[0];
    nodes_.set_scope(places_.Of(y));
    nodes_.AddNamed("RotaryEmbedding", {graph_.name(r.x), cosine, sine}, "RotaryEmbedding",
                    graph_.name(y));
    patch_.remove_nodes.insert(r.node);
  }

  bool any() const { return !patch_.remove_nodes.empty(); }

  Patch TakePatch() {
    patch_.new_nodes = nodes_.TakeNodes();
    patch_.new_initializers = nodes_.TakeInitializers();
    patch_.drop_value_info = false;
    return std::move(patch_);
  }

 private:
  // Returns [B, S, D/2]: the operator needs a table for each sequence.
  std::string Half(const Rotation& r, ValueId table, const std::string& role) {
    nodes_.set_scope("shared");
    std::string half = nodes_.Add(
        "Slice",
        {graph_.name(table), nodes_.Int64s({0}), nodes_.Int64s({r.half}), nodes_.Int64s({3})},
        role + "_half");
    half = nodes_.Add("Squeeze", {half, nodes_.Int64s({1})}, role);
    if (!r.one_for_all) return half;
    auto& shape = batches_[table];  // of the first x; all have the same batch
    if (shape.empty()) {
      const std::string batch = nodes_.Extent(graph_.name(r.x), 0, "B");
      shape = nodes_.Add("Concat", {batch, nodes_.Int64s({1, 1})}, role + "_shape",
                         {MakeAttribute("axis", int64_t{0})});
    }
    return nodes_.Add("Expand", {half, shape}, role + "_of_each");
  }

  const Graph& graph_;
  Places places_;
  NodeBuilder nodes_;
  Patch patch_;
  absl::flat_hash_map<ValueId, std::string> batches_;
};

}  // namespace

absl::StatusOr<onnx::ModelProto> FuseRotations(onnx::ModelProto model, const Manifest& relation) {
  const auto shared = std::make_shared<onnx::ModelProto>(std::move(model));
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(shared));
  Finder finder(graph);
  Emitter emitter(graph, relation);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (const auto rotation = finder.Find(n)) emitter.Emit(*rotation);
  }
  if (!emitter.any()) return std::move(*shared);
  return Apply(graph, emitter.TakePatch());
}

}  // namespace kvlift
