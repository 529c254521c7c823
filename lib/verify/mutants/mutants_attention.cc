// Mutants of Attention nodes: of the keys and values that they read, their arithmetic, their heads.
#include <cmath>
#include <utility>

#include "verify/mutants/mutant_kinds.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

constexpr float kSame = 2e-3f;

class AttentionMutants {
 public:
  AttentionMutants(MutantMaker& maker, const MutantSites& sites) : m_(maker), s_(sites) {}

  void Run() {
    for (const NodeId n : s_.ReadingPlaces()) {
      m_.Group("wiring");
      Wiring(n);
      m_.Group("arithmetic");
      Scale(n);
      Softcap(n);
      Precision(n);
      m_.Group("heads");
      Heads(n);
    }
  }

 private:
  void Attribute(const std::string& name, NodeId n, const std::string& attribute,
                 const onnx::AttributeProto* value) {
    m_.Add(name + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
      if (at != n) return;
      MutantMaker::Drop(node, attribute);
      if (value != nullptr) *node->add_attribute() = *value;
    });
  }

  void Wiring(NodeId n) {
    const auto key = s_.ScatterBehind(s_.Input(n, kKeyOperand));
    const auto value = s_.ScatterBehind(s_.Input(n, kValueOperand));
    if (key && value && *key != *value && s_.CacheType(*key) == s_.CacheType(*value)) {
      m_.Add("keys and values swapped" + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
        if (at == n) node->mutable_input()->SwapElements(kKeyOperand, kValueOperand);
      });
    }
    // The other layer is an earlier one, as its caches have to be written before they are read.
    for (const int operand : {kKeyOperand, kValueOperand}) {
      const NodeId first = s_.attentions().front();
      const auto mine = operand == kKeyOperand ? key : value;
      const auto other = s_.ScatterBehind(s_.Input(first, operand));
      if (first == n || !mine || !other || *mine == *other ||
          !(s_.CacheType(*mine) == s_.CacheType(*other))) {
        continue;
      }
      const char* name =
          operand == kKeyOperand ? "keys of another layer" : "values of another layer";
      m_.Add(name + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
        if (at == n) node->set_input(operand, s_.Name(first, operand));
      });
    }
  }

  void Scale(NodeId n) {
    const auto size = s_.HeadSize(n, kKeyOperand);
    const float given = FloatAttribute(s_.graph().node(n), "scale", 0.0f);
    const float usual = 1.0f / std::sqrt(static_cast<float>(size.value_or(64)));
    const float scale = given != 0.0f ? given : usual;
    const auto becomes = [&](const std::string& name, float to) {
      // A scale that differs by rounding to half precision only is not a wrong one.
      if (std::fabs(to - scale) <= kSame * scale) return;
      const auto attribute = MutantMaker::FloatAttr("scale", to);
      Attribute(name, n, "scale", &attribute);
    };
    becomes("scale eight times as large", 8 * scale);
    becomes("scale applied twice", scale * scale);
    if (given != 0.0f && size && std::fabs(given - usual) > kSame * usual) {
      Attribute("scale left at its default", n, "scale", nullptr);
    }
    if (size) becomes("scale missing", 1.0f);
    if (size) becomes("scale 1/d", 1.0f / static_cast<float>(*size));
    const auto values = s_.HeadSize(n, kValueOperand);
    if (size && values && *size != *values) {
      becomes("scale of the values' head size", 1.0f / std::sqrt(static_cast<float>(*values)));
    }
  }

  void Softcap(NodeId n) {
    if (FloatAttribute(s_.graph().node(n), "softcap", 0.0f) != 0.0f) {
      Attribute("softcap dropped", n, "softcap", nullptr);
    } else {
      const auto attribute = MutantMaker::FloatAttr("softcap", 0.5f);
      Attribute("softcap added", n, "softcap", &attribute);
    }
  }

  void Precision(NodeId n) {
    const auto scatter = s_.ScatterBehind(s_.Input(n, kKeyOperand));
    if (!scatter || s_.CacheType(*scatter).elem_type != TensorProto::FLOAT) return;
    for (const int operand : {kKeyOperand, kValueOperand}) {
      const char* name = operand == kKeyOperand ? "keys rounded to half" : "values rounded to half";
      m_.Replaced(name + s_.Label(n), {}, {n}, operand,
                  [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                    const auto to = [](int64_t type) { return MutantMaker::IntAttr("to", type); };
                    before->push_back(MutantMaker::Make("Cast", {node.input(operand)}, id + "half",
                                                        {to(TensorProto::FLOAT16)}));
                    before->push_back(MutantMaker::Make("Cast", {id + "half"}, id + "float",
                                                        {to(TensorProto::FLOAT)}));
                    return id + "float";
                  });
    }
    const auto half = MutantMaker::IntAttr("softmax_precision", TensorProto::FLOAT16);
    Attribute("softmax in half precision", n, "softmax_precision", &half);
  }

  void Heads(NodeId n) {
    const auto heads = s_.KeyHeads(n);
    if (heads && *heads > 1) {
      std::vector<int64_t> reversed(*heads);
      for (int64_t h = 0; h < *heads; ++h) reversed[h] = *heads - 1 - h;
      for (const int operand : {kKeyOperand, kValueOperand}) {
        const char* name = operand == kKeyOperand ? "key heads reversed" : "value heads reversed";
        m_.Replaced(name + s_.Label(n), {MutantMaker::Ints("mutant.heads", reversed)}, {n}, operand,
                    [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                      before->push_back(
                          MutantMaker::Make("Gather", {node.input(operand), "mutant.heads"},
                                            id + "turned", {MutantMaker::IntAttr("axis", 1)}));
                      return id + "turned";
                    });
      }
    }
    const SeenValue* query = s_.Seen(s_.Name(n, kQueryOperand));
    if (query == nullptr || query->shape.size() != 4) return;
    const int64_t queries = query->shape[1], size = query->shape[3];
    if (heads && *heads > 1 && queries > *heads) Tiled(n, queries / *heads);
    if (queries > 1 && size > 1) Split(n);
    if (queries > 1 && s_.limits().many_tokens) Untransposed(n);
    SwappedCounts(n);
  }

  // Query head h reads key head h mod Nk instead of h div G, with G = N / Nk.
  void Tiled(NodeId n, int64_t group) {
    m_.Add("heads tiled instead of repeated" + s_.Label(n), {},
           [&](NodeId at, NodeProto* node, auto* before) {
             if (at != n) return;
             for (const int operand : {kKeyOperand, kValueOperand}) {
               const std::string to = operand == kKeyOperand ? "mutant.keys" : "mutant.values";
               before->push_back(MutantMaker::Make(
                   "Concat", std::vector<std::string>(group, node->input(operand)), to,
                   {MutantMaker::IntAttr("axis", 1)}));
               node->set_input(operand, to);
             }
           });
  }

  // The last axis of the projected query [B, S, N*D] is split as (D, N) instead of (N, D).
  void Split(NodeId n) {
    m_.Replaced("query split as (D, N)" + s_.Label(n), {MutantMaker::Ints("mutant.0", {0})}, {n},
                kQueryOperand,
                [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
                  const auto perm = [](const std::vector<int64_t>& p) {
                    return MutantMaker::IntsAttr("perm", p);
                  };
                  const std::string query = node.input(kQueryOperand);
                  before->push_back(
                      MutantMaker::Make("Transpose", {query}, id + "bsnd", {perm({0, 2, 1, 3})}));
                  before->push_back(
                      MutantMaker::Make("Transpose", {query}, id + "bsdn", {perm({0, 2, 3, 1})}));
                  before->push_back(MutantMaker::Make("Shape", {id + "bsdn"}, id + "shape"));
                  before->push_back(
                      MutantMaker::Make("Reshape", {id + "bsnd", id + "shape"}, id + "other"));
                  before->push_back(MutantMaker::Make("Transpose", {id + "other"}, id + "query",
                                                      {perm({0, 3, 1, 2})}));
                  return id + "query";
                });
  }

  // The result [B, N, S, D] is read as [B, S, N, D].
  void Untransposed(NodeId n) {
    m_.Add("result not transposed" + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
      if (at != n) return;
      const std::string result = node->output(0);
      node->set_output(0, "mutant.result");
      m_.After(MutantMaker::Make("Transpose", {"mutant.result"}, "mutant.turned",
                                 {MutantMaker::IntsAttr("perm", {0, 2, 1, 3})}));
      m_.After(MutantMaker::Make("Shape", {"mutant.turned"}, "mutant.shape"));
      m_.After(MutantMaker::Make("Reshape", {"mutant.result", "mutant.shape"}, "mutant.taken"));
      m_.After(MutantMaker::Make("Transpose", {"mutant.taken"}, result,
                                 {MutantMaker::IntsAttr("perm", {0, 2, 1, 3})}));
    });
  }

  void SwappedCounts(NodeId n) {
    const int64_t q = IntAttribute(s_.graph().node(n), "q_num_heads", 0);
    const int64_t kv = IntAttribute(s_.graph().node(n), "kv_num_heads", 0);
    if (q == kv) return;
    m_.Add("numbers of heads swapped" + s_.Label(n), {}, [&](NodeId at, NodeProto* node, auto*) {
      if (at != n) return;
      MutantMaker::Drop(node, "q_num_heads");
      MutantMaker::Drop(node, "kv_num_heads");
      *node->add_attribute() = MutantMaker::IntAttr("q_num_heads", kv);
      *node->add_attribute() = MutantMaker::IntAttr("kv_num_heads", q);
    });
  }

  MutantMaker& m_;
  const MutantSites& s_;
};

}  // namespace

void AddAttentionMutants(MutantMaker& maker, const MutantSites& sites) {
  AttentionMutants(maker, sites).Run();
}

}  // namespace kvlift
