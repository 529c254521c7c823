#include "reduce/aligned_names.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "ir/subgraphs.h"

namespace kvlift {
namespace {

std::map<std::string, std::string> AttributesOf(const onnx::NodeProto& node) {
  std::map<std::string, std::string> attributes;
  for (onnx::AttributeProto attribute : node.attribute()) {
    attribute.clear_doc_string();
    attributes[attribute.name()] = attribute.SerializeAsString();
  }
  return attributes;
}

bool AreAlike(const onnx::NodeProto& a, const onnx::NodeProto& b) {
  return a.op_type() == b.op_type() && a.domain() == b.domain() &&
         a.input_size() == b.input_size() && a.output_size() == b.output_size() &&
         AttributesOf(a) == AttributesOf(b);
}

class Aligner {
 public:
  explicit Aligner(const SubjectGraphs& graphs) : before_(graphs.before()), after_(graphs.after()) {
    for (const ManifestOutput& output : graphs.subject().conversion->relation.outputs) {
      if (!IsCache(output)) Match(before_.Find(NameInSource(output)), after_.Find(output.name));
    }
  }

  // Returns the new names of values of the conversion.
  absl::flat_hash_map<std::string, std::string> Names() {
    while (!open_.empty()) {
      const auto [v, w] = open_.front();
      open_.pop_front();
      const NodeId n = before_.producer(v), m = after_.producer(w);
      if (n == kNoNode || m == kNoNode || before_.output_index(v) != after_.output_index(w) ||
          !AreAlike(before_.node(n), after_.node(m))) {
        continue;
      }
      for (size_t k = 0; k < before_.inputs(n).size(); ++k) {
        Match(before_.inputs(n)[k], after_.inputs(m)[k]);
      }
    }
    return Unique();
  }

 private:
  void Match(ValueId v, ValueId w) {
    if (v == kNoValue || w == kNoValue) return;
    if (!taken_before_.insert(v).second || !taken_after_.insert(w).second) return;
    open_.emplace_back(v, w);
    const bool inner = before_.producer(v) != kNoNode && after_.producer(w) != kNoNode &&
                       !before_.is_graph_output(v) && !after_.is_graph_output(w);
    if (inner && before_.name(v) != after_.name(w)) names_[after_.name(w)] = before_.name(v);
  }

  // Values that have a name which another one gets are renamed as well, unless they are part of
  // the interface or constants: then the other one keeps its name.
  absl::flat_hash_map<std::string, std::string> Unique() const {
    absl::flat_hash_map<std::string, std::string> names = names_;
    for (const auto& [from, to] : names_) {
      const ValueId holder = after_.Find(to);
      if (holder == kNoValue || names_.contains(to)) continue;
      std::string other = to + "/after";
      while (after_.Find(other) != kNoValue) other += "_";
      if (after_.producer(holder) == kNoNode || after_.is_graph_output(holder)) {
        names.erase(from);
      } else {
        names[to] = std::move(other);
      }
    }
    return names;
  }

  const Graph& before_;
  const Graph& after_;
  std::deque<std::pair<ValueId, ValueId>> open_;
  absl::flat_hash_set<ValueId> taken_before_, taken_after_;
  absl::flat_hash_map<std::string, std::string> names_;
};

}  // namespace

std::optional<Subject> WithAlignedNames(const SubjectGraphs& graphs) {
  if (!graphs.subject().is_pair()) return std::nullopt;
  const auto names = Aligner(graphs).Names();
  if (names.empty()) return std::nullopt;
  onnx::ModelProto model = graphs.after().model();
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
    if (!RenameValues(names, &node).ok()) return std::nullopt;
  }
  for (onnx::ValueInfoProto& info : *model.mutable_graph()->mutable_value_info()) {
    const auto name = names.find(info.name());
    if (name != names.end()) info.set_name(name->second);
  }
  Subject result = graphs.subject();
  result.conversion->model = WithProto(result.conversion->model, std::move(model));
  return result;
}

}  // namespace kvlift
