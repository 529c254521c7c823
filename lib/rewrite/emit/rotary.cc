#include "rewrite/emit/rotary.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/node_builder.h"
#include "ir/patch.h"

namespace kvlift {
namespace {

// The most nodes between a rotation and its cache or attention; they only change the shape.
constexpr int kMostSteps = 4;

// The scopes of names for rotations, by where their results go: "layers.0/key", "layers.0/query".
class Places {
 public:
  Places(const Analysis& a, const ConversionPlan& plan) : graph_(*a.graph) {
    for (const AnalysedCache& cache : a.caches) {
      if (cache.update_index < 0) continue;
      const NewRows& rows = plan.writes[cache.update_index].rows;
      for (ValueId v : ValuesOf(rows)) Mark(v, fmt::format("layers.{}/key", cache.layer));
    }
    for (size_t k = 0; k < a.attention.size(); ++k) {
      if (plan.replaced(k) == nullptr) continue;
      const AttentionSite& site = *a.attention[k].site;
      Mark(site.query, fmt::format("layers.{}/query", LayerOf(a, site.key.cache)));
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
      const NodeId n = graph_.producer(v);
      v = n == kNoNode || graph_.inputs(n).empty() ? kNoValue : graph_.inputs(n)[0];
    }
  }

  const Graph& graph_;
  absl::flat_hash_map<ValueId, std::string> scopes_;
};

// A rotation in the model that has the rest of the plan already.
struct Placed {
  NodeId node = kNoNode;
  ValueId x = kNoValue, cosine = kNoValue, sine = kNoValue;
  const Rotation* rotation = nullptr;
};

class Emitter {
 public:
  Emitter(const Analysis& a, const ConversionPlan& plan, const Graph& graph)
      : source_(*a.graph), graph_(graph), places_(a, plan), nodes_(graph) {}

  void Emit(const Placed& r) {
    const std::string cosine = Half(r, r.cosine, "cos"), sine = Half(r, r.sine, "sin");
    nodes_.set_scope(places_.Of(source_.outputs(r.rotation->node)[0]));
    nodes_.AddNamed("RotaryEmbedding", {graph_.name(r.x), cosine, sine}, "RotaryEmbedding",
                    graph_.name(graph_.outputs(r.node)[0]));
    patch_.remove_nodes.insert(r.node);
  }

  // Returns the rotations that the model has, by node.
  std::vector<Placed> Find(const std::vector<Rotation>& rotations) const {
    std::vector<Placed> found;
    for (const Rotation& r : rotations) {
      const NodeId node = Kept(r.node);
      if (node != kNoNode) found.push_back({node, At(r.x), At(r.cosine), At(r.sine), &r});
    }
    std::sort(found.begin(), found.end(),
              [](const Placed& a, const Placed& b) { return a.node < b.node; });
    return found;
  }

  Patch TakePatch() {
    patch_.new_nodes = nodes_.TakeNodes();
    patch_.new_initializers = nodes_.TakeInitializers();
    patch_.drop_value_info = false;
    return std::move(patch_);
  }

 private:
  // Returns the node of the model that a node of the source is; kNoNode if nothing reads it.
  NodeId Kept(NodeId n) const {
    const ValueId v = graph_.Find(source_.name(source_.outputs(n)[0]));
    return v == kNoValue ? kNoNode : graph_.producer(v);
  }

  ValueId At(const NodeOperand& operand) const {
    return graph_.inputs(Kept(operand.node))[operand.index];
  }

  // Returns [B, S, D/2]: the operator needs a table for each sequence.
  std::string Half(const Placed& r, ValueId table, const std::string& role) {
    const int64_t half_size = r.rotation->half;
    nodes_.set_scope("shared");
    std::string half = nodes_.Add(
        "Slice",
        {graph_.name(table), nodes_.Int64s({0}), nodes_.Int64s({half_size}), nodes_.Int64s({3})},
        role + "_half");
    half = nodes_.Add("Squeeze", {half, nodes_.Int64s({1})}, role);
    if (!r.rotation->one_for_all) return half;
    auto& shape = batches_[table];  // of the first x; all have the same batch
    if (shape.empty()) {
      const std::string batch = nodes_.Extent(graph_.name(r.x), 0, "B");
      shape = nodes_.Add("Concat", {batch, nodes_.Int64s({1, 1})}, role + "_shape",
                         {MakeAttribute("axis", int64_t{0})});
    }
    return nodes_.Add("Expand", {half, shape}, role + "_of_each");
  }

  const Graph& source_;
  const Graph& graph_;
  Places places_;
  NodeBuilder nodes_;
  Patch patch_;
  absl::flat_hash_map<ValueId, std::string> batches_;
};

}  // namespace

absl::StatusOr<onnx::ModelProto> FuseRotations(const Analysis& a, const ConversionPlan& plan,
                                               onnx::ModelProto model) {
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<onnx::ModelProto>(std::move(model))));
  Emitter emitter(a, plan, graph);
  for (const Placed& rotation : emitter.Find(plan.rotations)) emitter.Emit(rotation);
  return Apply(graph, emitter.TakePatch());
}

}  // namespace kvlift
