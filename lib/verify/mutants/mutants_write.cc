// Mutants of cache writes: of the operands and attributes of TensorScatter, and of which cache and
// which update it has.
#include <algorithm>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "verify/mutants/mutant_kinds.h"

namespace kvlift {
namespace {

using onnx::NodeProto;

class WriteMutants {
 public:
  WriteMutants(MutantMaker& maker, const MutantSites& sites) : m_(maker), s_(sites) {}

  void Run() {
    m_.Group("write");
    bool indexed = false;
    for (const NodeId n : s_.WrittenPlaces()) {
      if (s_.Input(n, kIndicesOperand) == kNoValue) continue;
      indexed = true;
      Index(n);
    }
    if (indexed) PerSequence();
    if (indexed) Truncated();
    for (const NodeId n : s_.WrittenPlaces()) Node(n);
    Circular();
    m_.Group("wiring");
    for (const NodeId n : s_.WrittenPlaces()) Wiring(n);
    SwappedOutputs();
  }

 private:
  // Appends nodes that compute M and S of a write, each of shape [1].
  static void Extents(const NodeProto& node, int64_t axis, const std::string& id,
                      std::vector<NodeProto>* before) {
    const auto at = MutantMaker::IntAttr("start", axis);
    std::vector<onnx::AttributeProto> cut = {at};
    if (axis != -1) cut.push_back(MutantMaker::IntAttr("end", axis + 1));
    before->push_back(
        MutantMaker::Make("Shape", {node.input(kCacheOperand)}, id + "capacity", cut));
    before->push_back(MutantMaker::Make("Shape", {node.input(kUpdateOperand)}, id + "new", cut));
  }

  int64_t AxisOfWrite(NodeId n) const { return IntAttribute(s_.graph().node(n), "axis", -2); }

  // Adds a mutant in which the write index of n is the value that nodes appended by `make` compute.
  void IndexAs(const std::string& name, NodeId n, const std::vector<onnx::TensorProto>& constants,
               const std::function<void(const std::string& index, const std::string& id,
                                        std::vector<NodeProto>* before)>& make) {
    m_.Replaced(name + s_.Label(n), constants, {n}, kIndicesOperand,
                [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                  Extents(node, AxisOfWrite(n), id, before);
                  make(node.input(kIndicesOperand), id, before);
                  return id + "index";
                });
  }

  void Index(NodeId n) {
    m_.Shifted("write index + 1" + s_.Label(n), {n}, kIndicesOperand, 1);
    m_.Shifted("write index - 1" + s_.Label(n), {n}, kIndicesOperand, -1);
    m_.Add("write index dropped" + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
      if (at == n) node->mutable_input()->DeleteSubrange(kIndicesOperand, 1);
    });
    const auto two = [](const char* op, const std::string& a, const std::string& b,
                        const std::string& to, std::vector<NodeProto>* before) {
      before->push_back(MutantMaker::Make(op, {a, b}, to));
    };
    IndexAs("index of the previous step", n, {MutantMaker::Ints("mutant.0", {0})},
            [&](const std::string& index, const std::string& id, auto* before) {
              two("Sub", index, id + "new", id + "back", before);
              two("Max", id + "back", "mutant.0", id + "index", before);
            });
    IndexAs("write index clamped two before the end", n, {MutantMaker::Ints("mutant.1", {1})},
            [&](const std::string& index, const std::string& id, auto* before) {
              two("Sub", id + "capacity", id + "new", id + "last", before);
              two("Sub", id + "last", "mutant.1", id + "limit", before);
              two("Min", index, id + "limit", id + "index", before);
            });
    m_.Equivalent(s_.limits().last_slot);
    IndexAs("write index modulo capacity - 1", n, {MutantMaker::Ints("mutant.1", {1})},
            [&](const std::string& index, const std::string& id, auto* before) {
              two("Sub", id + "capacity", "mutant.1", id + "less", before);
              two("Mod", index, id + "less", id + "index", before);
            });
    m_.Equivalent(s_.limits().last_start);
  }

  // Adds mutants in which all sequences have one write index, or each has that of another.
  void PerSequence() {
    const auto say = [&] {
      if (!s_.limits().ragged) m_.Equivalent(s_.limits().one_length);
    };
    m_.OfFirst("write index of sequence 0", s_.scatters(), kIndicesOperand);
    say();
    const auto all = [&](const std::string& name, const std::string& reduce) {
      m_.Replaced(
          name, {MutantMaker::Ints("mutant.0", {0})}, s_.scatters(), kIndicesOperand,
          [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
            const std::string& index = node.input(kIndicesOperand);
            before->push_back(MutantMaker::Make(reduce, {index, "mutant.0"}, id + "one"));
            before->push_back(MutantMaker::Make("Shape", {index}, id + "shape"));
            before->push_back(MutantMaker::Make("Expand", {id + "one", id + "shape"}, id + "all"));
            return id + "all";
          });
      say();
    };
    all("mean write index of the batch", "ReduceMean");
    all("largest write index of the batch", "ReduceMax");
    m_.Replaced("write indices reversed",
                {MutantMaker::Ints("mutant.-1", {-1}), MutantMaker::Ints("mutant.0", {0}),
                 MutantMaker::Ints("mutant.end", {INT64_MIN})},
                s_.scatters(), kIndicesOperand,
                [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                  before->push_back(MutantMaker::Make("Slice",
                                                      {node.input(kIndicesOperand), "mutant.-1",
                                                       "mutant.end", "mutant.0", "mutant.-1"},
                                                      id + "reversed"));
                  return id + "reversed";
                });
    say();
  }

  // The host's int64 write index loses its upper 32 bits.
  void Truncated() {
    for (const ManifestInput& input : s_.relation().inputs) {
      const ValueId v = s_.graph().Find(input.name);
      const ControlInput* control = AsControl(input);
      if (control == nullptr || control->dtype != "int64" || v == kNoValue || s_.Captured(v)) {
        continue;
      }
      bool made = false;
      m_.Add("write index cut to 32 bits", {}, [&](NodeId, NodeProto* node, auto* before) {
        for (std::string& name : *node->mutable_input()) {
          if (name != input.name) continue;
          if (!made) {
            before->push_back(
                MutantMaker::Make("Cast", {input.name}, "mutant.narrow",
                                  {MutantMaker::IntAttr("to", onnx::TensorProto::INT32)}));
            before->push_back(
                MutantMaker::Make("Cast", {"mutant.narrow"}, "mutant.wide",
                                  {MutantMaker::IntAttr("to", onnx::TensorProto::INT64)}));
          }
          made = true;
          name = "mutant.wide";
        }
      });
      m_.ShownBy(Detector::kOverflow);
      return;
    }
  }

  void Circular() {
    if (s_.scatters().empty()) return;
    const auto other = [&](const std::string& mode, const std::string& instead) {
      m_.Add(mode + " mode", {}, [&](NodeId, NodeProto* node, auto*) {
        if (node->op_type() != "TensorScatter" || ModeOf(*node) != instead) return;
        MutantMaker::Drop(node, "mode");
        *node->add_attribute() = MutantMaker::StringAttr("mode", mode);
      });
    };
    const auto has = [&](const std::string& mode) {
      return std::any_of(s_.scatters().begin(), s_.scatters().end(),
                         [&](NodeId n) { return ModeOf(s_.graph().node(n)) == mode; });
    };
    if (has("circular")) other("linear", "circular");
    if (!has("linear")) return;
    other("circular", "linear");
    m_.ShownBy(Detector::kOverflow);
  }

  static std::string ModeOf(const NodeProto& node) {
    return StringAttribute(node, "mode", "linear");
  }

  void Node(NodeId n) {
    const int64_t axis = AxisOfWrite(n);
    m_.Add("cache not written" + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
      if (at != n) return;
      *node = MutantMaker::Make("Identity", {node->input(kCacheOperand)}, node->output(0));
    });
    const auto other = [&](const std::string& name, int64_t to) {
      m_.Add(name + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
        if (at != n) return;
        MutantMaker::Drop(node, "axis");
        *node->add_attribute() = MutantMaker::IntAttr("axis", to);
      });
    };
    const TensorType type = s_.CacheType(n);
    const int64_t rank = type.shape ? static_cast<int64_t>(type.shape->size()) : 4;
    const int64_t positive = axis < 0 ? axis + rank : axis;
    if (positive + 1 < rank) other("write axis + 1", positive + 1);
    if (positive > 1) other("write axis - 1", positive - 1);
    if (positive != rank - 2) other("write axis left at its default", -2);
    const auto last = MutantMaker::Ints("mutant.-1", {-1});
    m_.Replaced(
        "update longer by one" + s_.Label(n),
        {last, MutantMaker::Ints("mutant.end", {INT64_MAX}),
         MutantMaker::Ints("mutant.axis", {axis})},
        {n}, kUpdateOperand,
        [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
          const std::string& update = node.input(kUpdateOperand);
          before->push_back(MutantMaker::Make(
              "Slice", {update, "mutant.-1", "mutant.end", "mutant.axis"}, id + "last"));
          before->push_back(MutantMaker::Make("Concat", {update, id + "last"}, id + "longer",
                                              {MutantMaker::IntAttr("axis", axis)}));
          return id + "longer";
        });
  }

  // Returns another write of a cache of the same type: the nearest one in front, else behind.
  std::optional<NodeId> Partner(NodeId n) const {
    std::optional<NodeId> best;
    for (const NodeId other : s_.scatters()) {
      if (other == n || !(s_.CacheType(other) == s_.CacheType(n))) continue;
      if (AxisOfWrite(other) != AxisOfWrite(n)) continue;
      if (!best || (other < n && (*best > n || other > *best))) best = other;
    }
    return best;
  }

  void Wiring(NodeId n) {
    const Graph& graph = s_.graph();
    const std::string now = graph.name(graph.outputs(n)[0]), past = s_.Name(n, kCacheOperand);
    if (s_.ReadByNodes(graph.outputs(n)[0])) {
      Stale("stale values" + s_.Label(n), now, past, n);
      if (graph.is_graph_output(graph.outputs(n)[0])) Early(n, now, past);
    }
    m_.Replaced("past replaced by zeros" + s_.Label(n), {}, {n}, kCacheOperand,
                [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                  before->push_back(MutantMaker::Make(
                      "Sub", {node.input(kCacheOperand), node.input(kCacheOperand)}, id + "zero"));
                  return id + "zero";
                });
    const auto partner = Partner(n);
    if (!partner) return;
    const ValueId other = s_.Input(*partner, kCacheOperand);
    if (graph.is_graph_input(other) && other != s_.Input(n, kCacheOperand)) {
      m_.Replaced(
          "cache of another write" + s_.Label(n), {}, {n}, kCacheOperand,
          [&](NodeId, const NodeProto&, const std::string&, auto*) { return graph.name(other); });
    }
    SwappedUpdates(n, *partner);
  }

  void SwappedUpdates(NodeId a, NodeId b) {
    // Both updates have to be computed in front of both writes.
    for (const NodeId n : {a, b}) {
      const NodeId made = s_.graph().producer(s_.Input(n, kUpdateOperand));
      if (made != kNoNode && made > std::min(a, b)) return;
    }
    m_.Add("updates swapped" + s_.Label(a), {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n == a) node->set_input(kUpdateOperand, s_.Name(b, kUpdateOperand));
      if (n == b) node->set_input(kUpdateOperand, s_.Name(a, kUpdateOperand));
    });
  }

  // All nodes that read the present read the past instead.
  void Stale(const std::string& name, const std::string& now, const std::string& past,
             NodeId writer) {
    m_.Add(name, {}, [&](NodeId n, NodeProto* node, auto*) {
      if (n == writer) return;
      for (std::string& input : *node->mutable_input()) {
        if (input == now) input = past;
      }
    });
  }

  // The output is the past, while nodes read the present.
  void Early(NodeId writer, const std::string& now, const std::string& past) {
    if (s_.Captured(s_.graph().outputs(writer)[0])) return;
    m_.Add("output taken before the write" + s_.Label(writer), {},
           [&](NodeId n, NodeProto* node, auto* before) {
             if (n == writer) {
               node->set_output(0, "mutant.now");
               before->push_back(MutantMaker::Make("Identity", {past}, now));
               return;
             }
             for (std::string& input : *node->mutable_input()) {
               if (input == now) input = "mutant.now";
             }
           });
  }

  // The outputs of two caches are exchanged, while nodes read the right ones.
  void SwappedOutputs() {
    for (const NodeId n : s_.WrittenPlaces()) {
      const auto partner = Partner(n);
      const ValueId a = s_.graph().outputs(n)[0];
      if (!partner || s_.Captured(a)) continue;
      const ValueId b = s_.graph().outputs(*partner)[0];
      if (s_.Captured(b) || !s_.graph().is_graph_output(a) || !s_.graph().is_graph_output(b)) {
        continue;
      }
      const std::string x = s_.graph().name(a), y = s_.graph().name(b);
      const auto rename = [&](const std::string& name, bool both) {
        m_.Add(name + s_.Label(n), {}, [&, both](NodeId, NodeProto* node, auto*) {
          for (std::string& input : *node->mutable_input()) {
            if (input == x) {
              input = "mutant.x";
            } else if (input == y) {
              input = "mutant.y";
            }
          }
          for (std::string& output : *node->mutable_output()) {
            if (output == x) {
              output = "mutant.x";
              m_.After(MutantMaker::Make("Identity", {"mutant.x"}, y));
              if (!both) m_.After(MutantMaker::Make("Identity", {"mutant.x"}, x));
            } else if (output == y) {
              output = "mutant.y";
              if (both) m_.After(MutantMaker::Make("Identity", {"mutant.y"}, x));
            }
          }
        });
      };
      rename("outputs swapped", true);
      rename("two caches bound to one output", false);
    }
  }

  MutantMaker& m_;
  const MutantSites& s_;
};

}  // namespace

void AddWriteMutants(MutantMaker& maker, const MutantSites& sites) {
  WriteMutants(maker, sites).Run();
}

}  // namespace kvlift
