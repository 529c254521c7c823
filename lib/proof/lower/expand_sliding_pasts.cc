// The part of Expander that reads GroupQueryAttention of com.microsoft with sliding_window_cache.
// Its pasts are buffers for the newest tokens (SlidingBuffer of contract/manifest.h), which hold at
// least the last W ones, and a query sees W tokens at most. So the results of the node, and the
// rows that it appends, are those over pasts of all P rows. Source: the operator text of ONNX
// Runtime 1.31.
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"
#include "ir/live_nodes.h"
#include "proof/lower/contrib_expander.h"

namespace kvlift::plain {

using onnx::NodeProto;

namespace {

constexpr int kPastKey = 3, kPresentKey = 1, kRowAxis = 2;

// Sets the extent of the row axis of a value; an empty symbol leaves it open.
template <typename Values>
void DeclareRows(Values* values, const std::string& name, const std::string& symbol) {
  for (onnx::ValueInfoProto& value : *values) {
    if (value.name() != name || !value.type().tensor_type().has_shape()) continue;
    auto* shape = value.mutable_type()->mutable_tensor_type()->mutable_shape();
    if (shape->dim_size() <= kRowAxis) continue;
    shape->mutable_dim(kRowAxis)->Clear();
    if (!symbol.empty()) shape->mutable_dim(kRowAxis)->set_dim_param(symbol);
  }
}

// Returns true if the node attends over a buffer `input` for the window that the relation says.
bool HasBuffer(const Graph& graph, const NodeProto& node, ValueId input, const SlidingPast& past) {
  constexpr size_t kRank = 4;
  constexpr int kScores = 10;
  const auto& shape = graph.type(input).shape;
  return node.domain() == "com.microsoft" && node.op_type() == "GroupQueryAttention" &&
         IntAttribute(node, "sliding_window_cache", 0) == 1 && past.buffer.window >= 1 &&
         IntAttribute(node, "local_window_size", -1) == past.buffer.window && !Has(node, kScores) &&
         shape && shape->size() == kRank && past.axis == kRowAxis &&
         (*shape)[kRowAxis].value == past.buffer.capacity &&
         past.buffer.capacity.value_or(past.buffer.window) >= past.buffer.window;
}

}  // namespace

// Finds the nodes whose pasts and presents of keys (side 0) and values (side 1) are the buffers
// that the relation names, as the graph has them, and which nothing but the node and the host
// reads.
void Expander::FindSlidingPasts() {
  if (sliding_.empty()) return;
  const auto built = Graph::Build(std::make_shared<const onnx::ModelProto>(plain_.model));
  if (!built.ok()) return;
  const absl::flat_hash_set<NodeId> live = LiveNodes(*built);
  for (const SlidingPast& past : sliding_) {
    const ValueId input = built->Find(past.input);
    if (input == kNoValue || !built->is_graph_input(input) || built->constant(input) != nullptr) {
      continue;
    }
    const std::vector<Use> uses = LiveUses(*built, live, input);
    if (uses.size() != 1 || uses[0].kind != Use::Kind::kNodeInput) continue;
    const int side = uses[0].index - kPastKey;
    if (side != 0 && side != 1) continue;
    const NodeProto& node = built->node(uses[0].node);
    if (!Gives(node, kPresentKey + side) || !HasBuffer(*built, node, input, past)) continue;
    const std::vector<Use> presents =
        LiveUses(*built, live, built->outputs(uses[0].node)[kPresentKey + side]);
    if (presents.size() != 1 || presents[0].kind != Use::Kind::kGraphOutput ||
        built->name(built->graph_outputs()[presents[0].index]) != past.output) {
      continue;
    }
    sliding_at_[{node.output(0), side}] = &past;
  }
}

// Returns true if the relation names both buffers of the node as they are.
bool Expander::HasSlidingPasts(const NodeProto& node) const {
  return sliding_at_.contains({node.output(0), 0}) && sliding_at_.contains({node.output(0), 1});
}

// Makes both buffers of the node pasts of P rows.
void Expander::GrowPasts(const NodeProto& node) {
  for (int side = 0; side < 2; ++side) {
    const SlidingPast& past = *sliding_at_.at({node.output(0), side});
    DeclareRows(graph().mutable_input(), past.input, std::string(kExpandedPrefix) + "past_length");
    DeclareRows(graph().mutable_output(), past.output, "");
    plain_.grown.push_back(past.input);
  }
}

}  // namespace kvlift::plain
