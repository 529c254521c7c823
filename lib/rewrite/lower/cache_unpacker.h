// Gives each layer of a packed tensor caches of its own: the class behind UnpackCaches. Internal to
// lib/rewrite.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ir/node_builder.h"
#include "onnxio/model/functional_form.h"
#include "rewrite/lower/joined_sequences.h"
#include "rewrite/lower/key_value_cache.h"
#include "sym/forms/forms.h"

namespace kvlift::internal {

// The attributes of a KeyValueCache node, with the operator's defaults.
struct Settings {
  int64_t layers, layer, bits, group, repeat, layout, mode;
  bool joins;  // the tokens of all sequences are on one axis

  explicit Settings(const onnx::NodeProto& node)
      : layers(IntAttribute(node, "num_layer", 1)),
        layer(IntAttribute(node, "layer_idx", 0)),
        bits(IntAttribute(node, "quant_bit", 0)),
        group(bits == 0 ? 0 : IntAttribute(node, "quant_group", 8)),
        repeat(IntAttribute(node, "num_repeat", 1)),
        layout(IntAttribute(node, "cache_layout", 0)),
        mode(IntAttribute(node, "cache_mode", 0)),
        joins(KeyValueCacheSlots::Of(node).joins_sequences()) {}

  int64_t layouts() const { return joins ? 4 : 2; }
};

// A packed tensor with the nodes that write into it, in their order.
struct Packed {
  ValueId past = kNoValue, present = kNoValue;
  ValueId scales_past = kNoValue, scales_present = kNoValue;
  std::vector<NodeId> nodes;
};

// The axes of the packed tensor that are those of a part.
struct PackedLayout {
  std::string letters;  // of a part
  // Axes of the packed tensor; negative: it has no such axis.
  int layers, roles, sequences, slots, heads;

  static PackedLayout Of(const Settings& s) {
    if (!s.joins) {
      return s.layout == 0 ? PackedLayout{"BSND", 1, 2, 0, 3, 4}
                           : PackedLayout{"BNSD", 0, 2, 1, 4, 3};
    }
    if (s.layout == 0) return {"BSND", 1, 2, -1, 0, 3};
    if (s.layout == 1) return {"BSND", 0, 2, -1, 1, 3};
    if (s.layout == 2) return {"BSND", 0, 1, -1, 2, 3};
    return {"BNSD", 0, 1, -1, 3, 2};
  }
  size_t rank() const { return sequences < 0 ? 5 : 6; }
  bool heads_first() const { return letters[1] == 'N'; }
  int64_t part_axis() const { return static_cast<int64_t>(letters.find('S')); }
  // Returns the layout of a part inside the packed tensor.
  std::string source_letters() const { return sequences < 0 ? letters.substr(1) : letters; }
  std::vector<Select> Selects(int64_t layer, int64_t role) const {
    return {{layers, layer}, {roles, role}};
  }
};

// Collects the packed tensors of a graph, and replaces the nodes that write into them.
class Unpacker {
 public:
  Unpacker(const Graph& graph, Normalised* result)
      : graph_(graph), forms_(graph), one_(forms_), builder_(graph), result_(*result) {}

  // Changes the model, or adds refusals, or leaves all as it is if there is nothing to lower.
  absl::Status Run();

 private:
  // Why a node stays as it is, and with it all caches of the tensor.
  struct Reason {
    NodeId node;
    std::string code, text;
  };

  bool Collect(NodeId n);
  std::optional<Reason> WhyNot(const Packed& packed);
  bool SameStart(NodeId a, NodeId b);
  bool ReadOnce(NodeId n) const;
  std::vector<sym::Expr> RowsShape(NodeId n);
  std::string ShapeMisfit(const Packed& packed, NodeId n, const Settings& s);

  KeyValueCacheSlots SlotsOf(NodeId n) const { return KeyValueCacheSlots::Of(graph_.node(n)); }

  Dim CapacityOf(ValueId packed, const Settings& s) const;
  std::string PackedMisfit(ValueId packed, NodeId n, const Settings& s, int64_t width,
                           int64_t heads);
  std::string TypeMisfit(const Packed& packed, NodeId n, const Settings& s);
  void Refuse(const Packed& packed, const Reason& reason);

  // The names of a layer's past and present.
  struct Part {
    std::string past, present;
  };

  void Declare(const Packed& packed);
  SourceCache SourceOf(ValueId past, ValueId present, const PackedLayout& layout, int64_t layer,
                       int64_t role) const;
  onnx::ValueInfoProto ValueOf(const Packed& packed, NodeId n, const Settings& s,
                               const std::string& name);
  void Emit(NodeId n, int number);
  std::string HeadsFirst(const std::string& value, const Settings& s, const char* role);
  std::string Written(const Settings& s, const std::string& rows, const Part& part,
                      const std::string& start, const std::string& end);
  void Repeated(const std::string& rows, const Settings& s, int64_t heads, int64_t size,
                const std::string& output);
  void Write();
  static void DropImports(onnx::ModelProto* model);

  using Parts = std::map<ValueId, std::vector<onnx::ValueInfoProto>>;

  void Replace(const Parts& parts,
               google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>* values);

  const Graph& graph_;
  sym::Forms forms_;
  OneSequence one_;
  NodeBuilder builder_;
  Normalised& result_;
  std::vector<Packed> packed_;
  Parts inputs_, outputs_;  // by packed tensor
  std::map<NodeId, std::vector<Part>> parts_;
  absl::flat_hash_set<std::string> taken_;
};

}  // namespace kvlift::internal
