#include "support/graph_compare.h"

#include <algorithm>
#include <map>
#include <set>

#include "fmt/format.h"
#include "ir/tensor_data.h"

namespace kvlift {
namespace {

class GraphComparison {
 public:
  GraphComparison(const onnx::GraphProto& a, const onnx::GraphProto& b) : a_(a), b_(b) {
    for (const auto& t : a.initializer()) constants_a_[t.name()] = &t;
    for (const auto& t : b.initializer()) constants_b_[t.name()] = &t;
  }

  std::string Run() {
    if (std::string d = Interfaces("input", a_.input(), b_.input()); !d.empty()) return d;
    if (std::string d = Interfaces("output", a_.output(), b_.output()); !d.empty()) return d;
    if (a_.node_size() != b_.node_size()) {
      return fmt::format("{} nodes, and {}", a_.node_size(), b_.node_size());
    }
    for (int n = 0; n < a_.node_size(); ++n) {
      std::string d = Nodes(a_.node(n), b_.node(n));
      if (!d.empty()) {
        return fmt::format("node {} ({} and {}): {}", n, a_.node(n).op_type(), b_.node(n).op_type(),
                           d);
      }
    }
    return {};
  }

 private:
  template <typename Infos>
  std::string Interfaces(std::string_view what, const Infos& a, const Infos& b) {
    if (a.size() != b.size()) return fmt::format("{} {}s, and {}", a.size(), what, b.size());
    for (int k = 0; k < a.size(); ++k) {
      if (a[k].SerializeAsString() != b[k].SerializeAsString()) {
        return fmt::format("{} {}: {} and {}", what, k, a[k].ShortDebugString(),
                           b[k].ShortDebugString());
      }
      if (!Same(a[k].name(), b[k].name())) return fmt::format("{} {}: connection", what, k);
    }
    return {};
  }

  // Pairs two names, or returns whether they are paired already.
  bool Same(const std::string& a, const std::string& b) {
    if (a.empty() != b.empty()) return false;
    const auto [x, fresh_x] = forward_.try_emplace(a, b);
    const auto [y, fresh_y] = backward_.try_emplace(b, a);
    if (!fresh_x || !fresh_y) return x->second == b && y->second == a;
    const auto p = constants_a_.find(a), q = constants_b_.find(b);
    if ((p == constants_a_.end()) != (q == constants_b_.end())) return false;
    return p == constants_a_.end() || SameTensor(*p->second, *q->second);
  }

  // Compares tensors by content, in whichever field it is stored.
  static bool SameTensor(const onnx::TensorProto& a, const onnx::TensorProto& b) {
    const auto x = InlineBytes(a), y = InlineBytes(b);
    return a.data_type() == b.data_type() &&
           std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end()) &&
           x.ok() && y.ok() && *x == *y;
  }

  std::string Nodes(const onnx::NodeProto& a, const onnx::NodeProto& b) {
    if (a.op_type() != b.op_type() || a.domain() != b.domain()) return "operators";
    if (a.input_size() != b.input_size() || a.output_size() != b.output_size()) {
      return "numbers of inputs or outputs";
    }
    for (int k = 0; k < a.input_size(); ++k) {
      if (!Same(a.input(k), b.input(k))) {
        return fmt::format("input {}: {} and {}", k, a.input(k), b.input(k));
      }
    }
    for (int k = 0; k < a.output_size(); ++k) {
      if (!Same(a.output(k), b.output(k))) return fmt::format("output {}", k);
    }
    return Attributes(a, b);
  }

  std::string Attributes(const onnx::NodeProto& a, const onnx::NodeProto& b) {
    const auto sorted = [](const onnx::NodeProto& node) {
      std::map<std::string, const onnx::AttributeProto*> by_name;
      for (const auto& attribute : node.attribute()) by_name[attribute.name()] = &attribute;
      return by_name;
    };
    const auto x = sorted(a), y = sorted(b);
    if (x.size() != y.size()) return "numbers of attributes";
    for (auto p = x.begin(), q = y.begin(); p != x.end(); ++p, ++q) {
      if (p->first != q->first) return fmt::format("attributes {} and {}", p->first, q->first);
      if (p->second->has_g() && q->second->has_g()) {
        GraphComparison body(p->second->g(), q->second->g());
        body.forward_ = forward_;
        body.backward_ = backward_;
        if (std::string d = body.Run(); !d.empty()) return fmt::format("body: {}", d);
      } else if (p->second->has_t() && q->second->has_t()) {
        if (!SameTensor(p->second->t(), q->second->t())) return "tensors of a constant";
      } else if (p->second->SerializeAsString() != q->second->SerializeAsString()) {
        return fmt::format("attribute {}: {} and {}", p->first, p->second->ShortDebugString(),
                           q->second->ShortDebugString());
      }
    }
    return {};
  }

  const onnx::GraphProto& a_;
  const onnx::GraphProto& b_;
  std::map<std::string, const onnx::TensorProto*> constants_a_, constants_b_;
  std::map<std::string, std::string> forward_, backward_;
};

std::set<std::pair<std::string, int64_t>> Opsets(const onnx::ModelProto& model) {
  std::set<std::pair<std::string, int64_t>> opsets;
  for (const auto& entry : model.opset_import()) opsets.insert({entry.domain(), entry.version()});
  return opsets;
}

}  // namespace

std::string FirstDifference(const onnx::ModelProto& a, const onnx::ModelProto& b) {
  if (a.ir_version() != b.ir_version()) {
    return fmt::format("IR versions {} and {}", a.ir_version(), b.ir_version());
  }
  if (Opsets(a) != Opsets(b)) return "opset imports";
  return GraphComparison(a.graph(), b.graph()).Run();
}

}  // namespace kvlift
