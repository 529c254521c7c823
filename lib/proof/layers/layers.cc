#include "proof/layers/layers.h"

#include <algorithm>
#include <string>

#include "ir/tensor_data.h"
#include "proof/graphs/pair.h"

namespace kvlift {

Sequence::Sequence(const Graph& graph, const std::vector<ValueId>& roots)
    : graph_(graph), places_(graph.num_nodes(), -1) {
  nodes_.reserve(graph.num_nodes());
  CountOperandsOfIdleNodes(roots);
  for (ValueId root : roots) {
    if (root != kNoValue) Visit(graph.producer(root));
  }
  for (ValueId output : graph.graph_outputs()) Visit(graph.producer(output));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) Visit(n);
  Classify();
}

// Uses an explicit stack, because a decoder is thousands of nodes deep.
void Sequence::Visit(NodeId root) {
  if (root == kNoNode || places_[root] >= 0) return;
  std::vector<std::pair<NodeId, size_t>> open = {{root, 0}};
  while (!open.empty()) {
    const NodeId n = open.back().first;
    const auto inputs = graph_.inputs(n);
    size_t& next = open.back().second;
    NodeId ahead = kNoNode;
    while (next < inputs.size() && ahead == kNoNode) {
      const ValueId input = inputs[next++];
      const NodeId producer = input == kNoValue ? kNoNode : graph_.producer(input);
      if (producer != kNoNode && places_[producer] < 0) ahead = producer;
    }
    if (ahead != kNoNode) {
      open.emplace_back(ahead, 0);
      continue;
    }
    open.pop_back();
    if (places_[n] < 0) Place(n);
  }
}

// Values without a producer that only idle nodes read are not counted.
void Sequence::CountOperandsOfIdleNodes(const std::vector<ValueId>& roots) {
  std::vector<bool> is_needed(graph_.num_nodes(), false);
  std::vector<NodeId> open;
  const auto need = [&](ValueId v) {
    const NodeId n = v == kNoValue ? kNoNode : graph_.producer(v);
    if (n == kNoNode || is_needed[n]) return;
    is_needed[n] = true;
    open.push_back(n);
  };
  std::for_each(roots.begin(), roots.end(), need);
  for (ValueId output : graph_.graph_outputs()) need(output);
  absl::flat_hash_set<ValueId> read;  // by nodes that are not idle
  while (!open.empty()) {
    const auto inputs = graph_.inputs(open.back());
    open.pop_back();
    read.insert(inputs.begin(), inputs.end());
    std::for_each(inputs.begin(), inputs.end(), need);
  }
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    if (is_needed[n]) continue;
    int& operands = idle_[n];
    for (ValueId v : graph_.inputs(n)) {
      if (v == kNoValue) continue;
      operands += graph_.producer(v) != kNoNode || read.contains(v) ? 1 : 0;
    }
  }
}

// Idle nodes all of whose operands have appeared follow the node at once.
void Sequence::Place(NodeId first) {
  std::vector<NodeId> open = {first};
  while (!open.empty()) {
    const NodeId n = open.back();
    open.pop_back();
    places_[n] = static_cast<int>(nodes_.size());
    nodes_.push_back(n);
    const auto appears = [&](ValueId v) {
      if (v == kNoValue || idle_.empty() || !appeared_.insert(v).second) return;
      for (const Use& use : graph_.uses(v)) {
        if (use.kind != Use::Kind::kNodeInput) continue;
        const auto idle = idle_.find(use.node);
        if (idle != idle_.end() && --idle->second == 0) open.push_back(use.node);
      }
    };
    for (ValueId v : graph_.inputs(n)) {
      if (v != kNoValue && graph_.producer(v) == kNoNode) appears(v);
    }
    for (ValueId v : graph_.outputs(n)) appears(v);
    std::erase_if(open, [&](NodeId next) { return places_[next] >= 0; });
  }
}

void Sequence::Classify() {
  absl::flat_hash_map<std::string, int> known;
  kinds_.reserve(nodes_.size());
  for (NodeId n : nodes_) {
    const onnx::NodeProto& node = graph_.node(n);
    std::string text = node.domain();
    text += '\0';
    text += node.op_type();
    text += '\0';
    for (const auto& attribute : node.attribute()) {
      const std::string bytes = attribute.SerializeAsString();
      text += std::to_string(bytes.size());
      text += ':';
      text += bytes;
    }
    kinds_.push_back(
        known.try_emplace(std::move(text), static_cast<int>(known.size())).first->second);
  }
}

int Sequence::place_of(ValueId v) const {
  const NodeId n = graph_.producer(v);
  return n == kNoNode ? -1 : places_[n];
}

namespace {

using onnx::TensorProto;

// Integer constants up to this size hold shapes, axes and the like; they must be equal in all
// layers.
constexpr int64_t kMostConstantElements = 64;

class LayerReader {
 public:
  LayerReader(const Sequence& sequence, int begin, int length,
              const absl::flat_hash_set<ValueId>& caches)
      : sequence_(sequence), graph_(sequence.graph()), caches_(caches) {
    layers_.begin = begin;
    layers_.length = length;
    layers_.count = 1;
    layers_.own.resize(1);
  }

  std::optional<Layers> Run(int count) {
    if (layers_.begin < 0 || layers_.length < 1) return std::nullopt;
    while (layers_.count < count && layers_.end() + layers_.length <= sequence_.size()) {
      if (!AddLayer()) break;
    }
    if (layers_.count < 2) return std::nullopt;
    for (const auto& [in, out] : carried_) {
      Layers::Carried carried{in, {}};
      for (int i = 0; i < layers_.count; ++i) carried.out.push_back(InLayer(out, i));
      layers_.carried.push_back(std::move(carried));
    }
    std::sort(layers_.carried.begin(), layers_.carried.end(),
              [](const auto& a, const auto& b) { return a.in < b.in; });
    if (!IsClosed()) return std::nullopt;
    return std::move(layers_);
  }

 private:
  // The value of layer i that corresponds to a value of layer 0.
  ValueId InLayer(ValueId v, int i) const {
    const int place = sequence_.place_of(v) + i * layers_.length;
    return graph_.outputs(sequence_.node(place))[graph_.output_index(v)];
  }

  bool AddLayer() {
    next_ = layers_.count;
    own_.clear();
    const auto carried = carried_;
    const auto open = layers_.open;
    for (int k = 0; k < layers_.length; ++k) {
      if (SameNodes(layers_.begin + k)) continue;
      carried_ = carried;
      layers_.open = open;
      return false;
    }
    layers_.own.push_back(std::move(own_));
    ++layers_.count;
    return true;
  }

  bool SameNodes(int place) {
    const int other = place + next_ * layers_.length;
    if (sequence_.kind(place) != sequence_.kind(other)) return false;
    const NodeId x = sequence_.node(place), y = sequence_.node(other);
    const auto a = graph_.inputs(x), b = graph_.inputs(y);
    if (a.size() != b.size() || !SameResults(graph_.outputs(x), graph_.outputs(y))) return false;
    for (size_t k = 0; k < a.size(); ++k) {
      if (!SameOperand(a[k], b[k])) return false;
    }
    return true;
  }

  bool SameResults(absl::Span<const ValueId> a, absl::Span<const ValueId> b) const {
    if (a.size() != b.size()) return false;
    for (size_t k = 0; k < a.size(); ++k) {
      if ((a[k] == kNoValue) != (b[k] == kNoValue)) return false;
      if (a[k] == kNoValue) continue;
      if (!(graph_.type(a[k]) == graph_.type(b[k]))) return false;
      if (graph_.is_graph_output(a[k]) != graph_.is_graph_output(b[k])) return false;
    }
    return true;
  }

  // Maps x, which layer 0 reads, to y, which the compared layer reads; false if x is mapped to
  // another value.
  bool Becomes(ValueId x, ValueId y) { return own_.try_emplace(x, y).first->second == y; }

  bool SameOperand(ValueId x, ValueId y) {
    if (x == kNoValue || y == kNoValue) return x == y;
    const int made = sequence_.place_of(x), other = sequence_.place_of(y);
    if (made >= layers_.begin) {
      return other == made + next_ * layers_.length &&
             graph_.output_index(x) == graph_.output_index(y);
    }
    if (!Becomes(x, y)) return false;
    if (x == y) return true;
    if (other >= 0) return IsCarried(x, y, other);
    if (made >= 0 || graph_.is_graph_output(x)) return false;
    const TensorProto* a = graph_.constant(x);
    const TensorProto* b = graph_.constant(y);
    if (a != nullptr && b != nullptr) return SameConstants(x, *a, *b);
    return a == nullptr && b == nullptr && caches_.contains(x) && caches_.contains(y) &&
           graph_.type(x) == graph_.type(y);
  }

  // Returns true if y is a carried value: layer 0 reads x, which is made before all layers, and the
  // compared layer reads in x's place what the layer before it makes.
  bool IsCarried(ValueId x, ValueId y, int made) {
    const int first = made - (next_ - 1) * layers_.length;
    if (first < layers_.begin || first >= layers_.begin + layers_.length) return false;
    const ValueId out = graph_.outputs(sequence_.node(first))[graph_.output_index(y)];
    return carried_.try_emplace(x, out).first->second == out;
  }

  bool SameConstants(ValueId x, const TensorProto& a, const TensorProto& b) {
    if (a.data_type() != b.data_type() ||
        !std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end())) {
      return false;
    }
    if (IsRead(a) && IsRead(b)) {
      if (SameData(a, b)) return true;
      const auto size = NumElements(a);
      if (!size.ok() || *size <= (IsFloatType(a.data_type()) ? 1 : kMostConstantElements)) {
        return false;
      }
    }
    layers_.open.insert(x);
    return true;
  }

  bool IsClosed() const {
    for (int place = layers_.begin; place < layers_.end(); ++place) {
      for (ValueId v : graph_.outputs(sequence_.node(place))) {
        if (v != kNoValue && !IsReadAsItMay(v, place)) return false;
      }
    }
    for (int i = 1; i < layers_.count; ++i) {
      for (const auto& [x, y] : layers_.own[i]) {
        if (x == y || sequence_.place_of(y) >= 0) continue;
        if (!caches_.contains(x) && !layers_.open.contains(x)) continue;
        if (!IsReadIn(0, x) || (caches_.contains(x) && !IsReadIn(i, y))) return false;
      }
    }
    return true;
  }

  // Readers inside the layers need no check: AddLayer has compared them.
  bool IsReadAsItMay(ValueId v, int place) const {
    const int last = layers_.count - 1;
    for (const Use& use : graph_.uses(v)) {
      if (use.kind == Use::Kind::kGraphOutput) continue;
      if (use.kind == Use::Kind::kCapture) return false;
      if (layers_.Contains(sequence_.place(use.node))) continue;
      const bool leaves =
          layers_.LayerOf(place) == last &&
          std::any_of(layers_.carried.begin(), layers_.carried.end(),
                      [&](const Layers::Carried& carried) { return carried.out[last] == v; });
      if (!leaves) return false;
    }
    return true;
  }

  bool IsReadIn(int layer, ValueId v) const {
    return std::all_of(graph_.uses(v).begin(), graph_.uses(v).end(), [&](const Use& use) {
      return use.kind == Use::Kind::kNodeInput &&
             layers_.LayerOf(sequence_.place(use.node)) == layer;
    });
  }

  const Sequence& sequence_;
  const Graph& graph_;
  const absl::flat_hash_set<ValueId>& caches_;
  Layers layers_;
  // A value that layer 0 reads -> the value that layer 0 makes for layer 1 to read in its place.
  absl::flat_hash_map<ValueId, ValueId> carried_;
  int next_ = 0;                               // the number of the layer that is compared
  absl::flat_hash_map<ValueId, ValueId> own_;  // Layers::own of that layer
};

}  // namespace

std::optional<Layers> ReadLayers(const Sequence& sequence, int begin, int length, int count,
                                 const absl::flat_hash_set<ValueId>& caches) {
  return LayerReader(sequence, begin, length, caches).Run(count);
}

}  // namespace kvlift
