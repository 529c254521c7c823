#include "verify/explain/first_difference.h"

#include <algorithm>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"

namespace kvlift {
namespace {

// Type, shape and a hash of the bytes of a value.
struct Print {
  int32_t type = 0;
  exec::Shape shape;
  size_t hash = 0;

  bool Fits(const Print& other) const { return type == other.type && shape == other.shape; }
};

Print PrintOf(const exec::View& view) {
  Print print{view.type, view.shape, 0};
  if (view.data != nullptr && view.bytes() > 0) {
    print.hash = absl::HashOf(std::string_view(reinterpret_cast<const char*>(view.data),
                                               static_cast<size_t>(view.bytes())));
  }
  return print;
}

bool SameConstant(const onnx::TensorProto& a, const onnx::TensorProto& b) {
  if (&a == &b) return true;
  if (a.data_type() != b.data_type() || a.dims_size() != b.dims_size()) return false;
  if (!std::equal(a.dims().begin(), a.dims().end(), b.dims().begin())) return false;
  const auto body = [](onnx::TensorProto copy) {
    copy.clear_name();
    copy.clear_doc_string();
    return copy.SerializeAsString();
  };
  if (!a.raw_data().empty() || !b.raw_data().empty()) return a.raw_data() == b.raw_data();
  return body(a) == body(b);
}

bool SameAttributes(const onnx::NodeProto& a, const onnx::NodeProto& b) {
  if (a.attribute_size() != b.attribute_size()) return false;
  for (const auto& mine : a.attribute()) {
    const auto* theirs = FindAttribute(b, mine.name());
    if (theirs == nullptr || mine.has_g() || mine.graphs_size() > 0) return false;
    if (mine.SerializeAsString() != theirs->SerializeAsString()) return false;
  }
  return true;
}

class Matcher {
 public:
  Matcher(const Graph& source, const Graph& after, const Manifest& relation)
      : source_(source), after_(after) {
    for (const ManifestInput& input : relation.inputs) {
      if (AsOf(input) == InputAs::kSame) same_.insert(input.name);
    }
  }

  absl::flat_hash_set<std::string> Run() {
    for (NodeId n = 0; n < after_.num_nodes(); ++n) {
      for (const ValueId v : after_.outputs(n)) {
        if (v != kNoValue && Unchanged(n, v)) same_.insert(after_.name(v));
      }
    }
    return std::move(same_);
  }

 private:
  bool Unchanged(NodeId n, ValueId v) const {
    const ValueId theirs = source_.Find(after_.name(v));
    if (theirs == kNoValue || source_.producer(theirs) == kNoNode) return false;
    const NodeId m = source_.producer(theirs);
    const auto &a = after_.node(n), &b = source_.node(m);
    if (a.op_type() != b.op_type() || a.domain() != b.domain() || !SameAttributes(a, b) ||
        after_.output_index(v) != source_.output_index(theirs) ||
        after_.inputs(n).size() != source_.inputs(m).size() ||
        after_.outputs(n).size() != source_.outputs(m).size()) {
      return false;
    }
    for (size_t k = 0; k < after_.inputs(n).size(); ++k) {
      if (!SameOperand(after_.inputs(n)[k], source_.inputs(m)[k])) return false;
    }
    return true;
  }

  bool SameOperand(ValueId mine, ValueId theirs) const {
    if (mine == kNoValue || theirs == kNoValue) return mine == theirs;
    const auto *a = after_.constant(mine), *b = source_.constant(theirs);
    if (a != nullptr && b != nullptr) return SameConstant(*a, *b);
    const std::string& name = after_.name(mine);
    return name == source_.name(theirs) && same_.contains(name);
  }

  const Graph &source_, &after_;
  absl::flat_hash_set<std::string> same_;
};

using Prints = absl::flat_hash_map<std::string, Print>;

bool Watch(Runner& runner, const exec::Feeds& feeds, Prints* prints) {
  const Graph& graph = runner.program().graph();
  runner.session().set_observer([&](NodeId n, absl::Span<const exec::View> outputs) {
    for (size_t k = 0; k < outputs.size() && k < graph.outputs(n).size(); ++k) {
      const ValueId v = graph.outputs(n)[k];
      if (v != kNoValue) prints->insert_or_assign(graph.name(v), PrintOf(outputs[k]));
    }
  });
  const bool ran = runner.Step(feeds).ok();
  runner.session().set_observer(nullptr);
  return ran;
}

}  // namespace

absl::flat_hash_set<std::string> UnchangedValues(const Graph& source, const Graph& after,
                                                 const Manifest& relation) {
  return Matcher(source, after, relation).Run();
}

RoundingReport FindFirstDifference(Runner& source, Runner& converted, const StepFeeds& feeds,
                                   const Manifest& relation) {
  RoundingReport report;
  Prints before, after;
  if (!Watch(source, feeds.source, &before) || !Watch(converted, feeds.converted, &after)) {
    return report;
  }
  const Graph& graph = converted.program().graph();
  const auto unchanged = UnchangedValues(source.program().graph(), graph, relation);
  // The bytes of caches in different layouts cannot be compared.
  absl::flat_hash_set<std::string> moved;
  for (const ManifestCache& cache : relation.caches) {
    if (cache.layout != cache.source.layout) moved.insert(cache.output);
  }
  report.step = feeds.where;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.outputs(n)) {
      if (v == kNoValue) continue;
      const std::string& name = graph.name(v);
      ++report.values;
      const bool same_nodes = unchanged.contains(name);
      report.unchanged += same_nodes ? 1 : 0;
      const auto mine = after.find(name), theirs = before.find(name);
      if (mine == after.end() || theirs == before.end()) continue;
      if (moved.contains(name) || !mine->second.Fits(theirs->second)) continue;
      ++report.compared;
      if (mine->second.hash == theirs->second.hash) {
        ++report.bitwise;
        continue;
      }
      if (report.first.empty()) {
        report.first = graph.NodeName(n);
        report.first_operator = graph.node(n).op_type();
      }
      if (same_nodes && report.broken.empty()) report.broken = graph.NodeName(n);
    }
  }
  return report;
}

}  // namespace kvlift
