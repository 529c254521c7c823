#include "verify/mutants.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "verify/mutant_guards.h"
#include "verify/mutant_maker.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

constexpr int kCache = 0, kUpdate = 1, kIndices = 2;         // of TensorScatter
constexpr int kKey = 1, kValue = 2, kMask = 3, kNonpad = 6;  // of Attention

class Maker : public MutantMaker {
 public:
  Maker(const Graph& graph, const Manifest& relation, const MutantLimits& limits)
      : MutantMaker(graph), graph_(graph), relation_(relation), limits_(limits) {
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      if (graph.Is(n, "TensorScatter")) scatters_.push_back(n);
      if (graph.Is(n, "Attention") && Input(n, kNonpad) != kNoValue) attentions_.push_back(n);
    }
  }

  std::vector<Mutant> Run() {
    if (scatters_.empty()) {
      CacheMutants();
    } else {
      WriteMutants();
      WiringMutants();
    }
    AddGuardMutants(*this, limits_);
    if (!attentions_.empty()) {
      if (limits_.ragged) OfFirst("valid length of sequence 0", attentions_, kNonpad);
      if (limits_.ragged) MarkAsGuard();
      AttentionMutants();
      ArithmeticMutants();
    }
    PositionMutant();
    InputMutants();
    return std::move(mutants());
  }

 private:
  void WriteMutants() {
    const NodeId last = scatters_.back();
    if (Input(last, kIndices) != kNoValue) {
      Shifted("write index + 1", {last}, kIndices, 1);
      Shifted("write index - 1", {last}, kIndices, -1);
      Add("write index dropped", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == last) node->mutable_input()->DeleteSubrange(kIndices, 1);
      });
      if (limits_.ragged) OfFirst("write index of sequence 0", scatters_, kIndices);
    }
    Add("cache not written", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n != last) return;
      *node = Make("Identity", {node->input(kCache)}, node->output(0));
    });
  }

  const TensorType& TypeOfCache(NodeId scatter) const {
    return graph_.type(graph_.inputs(scatter)[kCache]);
  }

  // The TensorScatter whose result reaches an operand through slices and transposes.
  std::optional<NodeId> ScatterBehind(ValueId v) const {
    while (v != kNoValue) {
      const NodeId n = graph_.producer(v);
      if (n == kNoNode) return std::nullopt;
      if (graph_.Is(n, "TensorScatter")) return n;
      if (!graph_.Is(n, "Slice") && !graph_.Is(n, "Transpose") && !graph_.Is(n, "Identity")) {
        return std::nullopt;
      }
      v = graph_.inputs(n)[0];
    }
    return std::nullopt;
  }

  // The writes of the last attention's keys and values; else the last two of one type.
  std::optional<std::pair<NodeId, NodeId>> LastPair() const {
    if (!attentions_.empty()) {
      const NodeId last = attentions_.back();
      const auto key = ScatterBehind(Input(last, kKey)), value = ScatterBehind(Input(last, kValue));
      if (!key || !value || *key == *value || TypeOfCache(*key) != TypeOfCache(*value)) {
        return std::nullopt;
      }
      return std::pair(*key, *value);
    }
    const size_t count = scatters_.size();
    if (count < 2) return std::nullopt;
    const NodeId a = scatters_[count - 2], b = scatters_[count - 1];
    if (!(TypeOfCache(a) == TypeOfCache(b))) return std::nullopt;
    return std::pair(a, b);
  }

  void WiringMutants() {
    if (const auto pair = LastPair()) {
      const auto [key, value] = *pair;
      SwapUpdates(key, value);
    }
    const NodeId last = scatters_.back();
    const ValueId present = graph_.outputs(last)[0];
    if (ReadByNodes(present)) Stale(graph_.name(present), Name(last, kCache), last);
  }

  void SwapUpdates(NodeId key, NodeId value) {
    // Both updates must stand before both writes.
    if (!UpdatesFirst(key, value)) return;
    Add("updates swapped", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n == key) node->set_input(kUpdate, Name(value, kUpdate));
      if (n == value) node->set_input(kUpdate, Name(key, kUpdate));
    });
  }

  // Whoever reads the present reads the past.
  void Stale(const std::string& present, const std::string& past, NodeId writer) {
    Add("stale values", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n == writer) return;
      for (std::string& input : *node->mutable_input()) {
        if (input == present) input = past;
      }
    });
  }

  bool ReadByNodes(ValueId v) const {
    return std::any_of(graph_.uses(v).begin(), graph_.uses(v).end(),
                       [](const Use& use) { return use.kind == Use::Kind::kNodeInput; });
  }

  bool Captured(ValueId v) const {
    return std::any_of(graph_.uses(v).begin(), graph_.uses(v).end(),
                       [](const Use& use) { return use.kind == Use::Kind::kCapture; });
  }

  // Caches that are written by other means: mutants at the ends that the relation names.
  void CacheMutants() {
    const ManifestCache* last = nullptr;
    for (const ManifestCache& cache : relation_.caches) {
      if (graph_.producer(graph_.Find(cache.output)) != kNoNode) last = &cache;
    }
    if (last == nullptr) return;
    const ValueId present = graph_.Find(last->output);
    const NodeId writer = graph_.producer(present);
    Add("cache not written", {}, [&](NodeId n, NodeProto* node, auto* before) {
      if (n != writer) return;
      node->set_output(graph_.output_index(present), "mutant.unused");
      before->push_back(Make("Identity", {last->input}, last->output));
    });
    if (ReadByNodes(present)) Stale(last->output, last->input, writer);
    for (const ManifestCache& other : relation_.caches) {
      const ValueId a = graph_.Find(other.input), b = graph_.Find(last->input);
      if (a == b || !(graph_.type(a) == graph_.type(b)) || Captured(a) || Captured(b)) continue;
      Add("caches swapped", {}, [&](NodeId, NodeProto* node, auto*) {
        for (std::string& input : *node->mutable_input()) {
          if (input == other.input) {
            input = last->input;
          } else if (input == last->input) {
            input = other.input;
          }
        }
      });
      break;
    }
  }

  void AttentionMutants() {
    const NodeId last = attentions_.back();
    const auto key = ScatterBehind(Input(last, kKey)), value = ScatterBehind(Input(last, kValue));
    if (key && value && TypeOfCache(*key) == TypeOfCache(*value)) {
      Add("keys and values swapped", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == last) node->mutable_input()->SwapElements(kKey, kValue);
      });
    }
    if (attentions_.size() > 1) {
      const NodeId first = attentions_.front();
      const auto other = ScatterBehind(Input(first, kKey));
      if (key && other && *key != *other && TypeOfCache(*key) == TypeOfCache(*other)) {
        Add("keys of another layer", {}, [&](NodeId n, NodeProto* node, auto*) {
          if (n == last) node->set_input(kKey, Name(first, kKey));
        });
      }
    }
    if (const auto heads = KeyHeads(last); heads && *heads > 1) {
      std::vector<int64_t> reversed(*heads);
      for (int64_t h = 0; h < *heads; ++h) reversed[h] = *heads - 1 - h;
      Add("key heads reversed", {Ints("mutant.heads", reversed)},
          [&](NodeId n, NodeProto* node, auto* before) {
            if (n != last) return;
            NodeProto gather = Make("Gather", {node->input(kKey), "mutant.heads"}, "mutant.key");
            *gather.add_attribute() = IntAttr("axis", 1);
            before->push_back(std::move(gather));
            node->set_input(kKey, "mutant.key");
          });
    }
  }

  bool UpdatesFirst(NodeId a, NodeId b) const {
    const NodeId first = std::min(a, b);
    for (NodeId n : {a, b}) {
      const NodeId made = graph_.producer(Input(n, kUpdate));
      if (made != kNoNode && made > first) return false;
    }
    return true;
  }

  std::optional<int64_t> KeyHeads(NodeId attention) const {
    const auto scatter = ScatterBehind(Input(attention, kKey));
    if (!scatter || !TypeOfCache(*scatter).shape) return std::nullopt;
    const auto& shape = *TypeOfCache(*scatter).shape;
    const int64_t axis = IntAttribute(graph_.node(*scatter), "axis", -2);
    if (shape.size() != 4 || (axis != 2 && axis != -2)) return std::nullopt;
    return shape[1].value;
  }

  void ArithmeticMutants() {
    const NodeId last = attentions_.back();
    const float scale = FloatAttribute(graph_.node(last), "scale", 0.0f);
    Add("scale eight times as large", {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n != last) return;
      const auto size = HeadSize(last);
      const float usual =
          scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(size.value_or(64)));
      Drop(node, "scale");
      onnx::AttributeProto attribute;
      attribute.set_name("scale");
      attribute.set_type(onnx::AttributeProto::FLOAT);
      attribute.set_f(8.0f * usual);
      *node->add_attribute() = attribute;
    });
    if (FloatAttribute(graph_.node(last), "softcap", 0.0f) != 0.0f) {
      Add("softcap dropped", {}, [&](NodeId n, NodeProto* node, auto*) {
        if (n == last) Drop(node, "softcap");
      });
    }
  }

  std::optional<int64_t> HeadSize(NodeId attention) const {
    const auto scatter = ScatterBehind(Input(attention, kKey));
    if (!scatter || !TypeOfCache(*scatter).shape) return std::nullopt;
    const auto& shape = *TypeOfCache(*scatter).shape;
    const int64_t axis = IntAttribute(graph_.node(*scatter), "axis", -2);
    // The head size is the last axis, or the one before where the sequence is last.
    return shape[shape.size() - (axis == 3 || axis == -1 ? 2 : 1)].value;
  }

  // Whatever else is computed from the write index: positions.
  void PositionMutant() {
    if (scatters_.empty()) return;
    const ValueId index = Input(scatters_.front(), kIndices);
    if (index == kNoValue || !graph_.is_graph_input(index)) return;
    std::set<std::pair<NodeId, int>> where;
    for (const Use& use : graph_.uses(index)) {
      if (use.kind != Use::Kind::kNodeInput || graph_.Is(use.node, "TensorScatter")) continue;
      if (!FeedsValidLength(use.node) && !FeedsMaskOnly(use.node)) {
        where.emplace(use.node, use.index);
      }
    }
    if (!where.empty()) Moved("positions + 1", where, index);
  }

  // Lengths and positions from the host, each on its own.
  void InputMutants() {
    for (const std::string& name : limits_.positions) {
      const ValueId v = graph_.Find(name);
      if (v == kNoValue) continue;
      std::set<std::pair<NodeId, int>> where;
      for (const Use& use : graph_.uses(v)) {
        if (use.kind == Use::Kind::kNodeInput && !graph_.Is(use.node, "Shape")) {
          where.emplace(use.node, use.index);
        }
      }
      if (where.empty()) continue;
      Moved(name + " + 1", where, v);
      if (limits_.totals.count(name) > 0) MarkAsGuard();
    }
  }

  void Moved(const std::string& name, const std::set<std::pair<NodeId, int>>& where, ValueId v) {
    onnx::TensorProto by = Ints("mutant.by", {1});
    const std::string& read = graph_.name(v);
    std::vector<onnx::TensorProto> constants = {by};
    const bool narrow = graph_.type(v).elem_type == onnx::TensorProto::INT32;
    // A scalar stays one.
    const bool scalar = graph_.type(v).shape && graph_.type(v).shape->empty();
    if (scalar) constants[0].clear_dims();
    if (narrow) {
      constants[0].set_data_type(onnx::TensorProto::INT32);
      constants[0].clear_int64_data();
      constants[0].add_int32_data(1);
    }
    bool made = false;
    Add(name, constants, [&](NodeId n, NodeProto* node, auto* before) {
      for (int k = 0; k < node->input_size(); ++k) {
        if (where.count({n, k}) == 0) continue;
        if (!made) before->push_back(Make("Add", {read, "mutant.by"}, "mutant.moved"));
        made = true;
        node->set_input(k, "mutant.moved");
      }
    });
  }

  bool FeedsValidLength(NodeId n) const {
    for (const Use& use : graph_.uses(graph_.outputs(n)[0])) {
      if (use.kind == Use::Kind::kNodeInput && graph_.Is(use.node, "Attention") &&
          use.index == kNonpad) {
        return true;
      }
    }
    return false;
  }

  // Everything computed from n ends in masks, or says where something as long as the keys ends.
  bool FeedsMaskOnly(NodeId n) const {
    std::vector<NodeId> stack = {n};
    std::vector<bool> seen(graph_.num_nodes(), false);
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      for (ValueId v : graph_.outputs(at)) {
        if (v == kNoValue) continue;
        for (const Use& use : graph_.uses(v)) {
          if (use.kind != Use::Kind::kNodeInput) return false;
          if (graph_.Is(use.node, "Attention")) {
            if (use.index != kMask && use.index != kNonpad) return false;
          } else if (!graph_.Is(use.node, "Slice") || use.index != 2) {
            stack.push_back(use.node);
          }
        }
      }
    }
    return true;
  }

  const Graph& graph_;
  const Manifest& relation_;
  const MutantLimits& limits_;
  std::vector<NodeId> scatters_, attentions_;
};

}  // namespace

std::vector<Mutant> MakeMutants(const Graph& graph, const Manifest& relation,
                                const MutantLimits& limits) {
  return Maker(graph, relation, limits).Run();
}

}  // namespace kvlift
