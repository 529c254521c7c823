#include "verify/judge/same_arithmetic.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proof/graphs/pair.h"

namespace kvlift {
namespace {

// A pair of values, of the converted model and of the source.
using Twins = std::pair<ValueId, ValueId>;

class Comparer {
 public:
  Comparer(const Graph& source, const Graph& after, const Manifest& relation)
      : source_(source), after_(after) {
    for (const ManifestInput& input : relation.inputs) {
      if (IsFedToBoth(input)) inputs_[input.name] = NameInSource(input);
    }
    for (const ManifestCache& cache : relation.caches) {
      if (cache.layout != cache.source.layout || !cache.source.select.empty()) continue;
      inputs_[cache.input] = cache.source.input;
      open_.push_back({after_.Find(cache.output), source_.Find(cache.source.output)});
    }
    for (const ManifestOutput& output : relation.outputs) {
      if (IsCache(output)) continue;
      open_.push_back({after_.Find(output.name), source_.Find(NameInSource(output))});
    }
  }

  bool Run() {
    while (!open_.empty()) {
      const Twins twins = open_.back();
      open_.pop_back();
      if (!seen_.insert(twins).second) continue;
      if (!Same(twins)) return false;
    }
    return true;
  }

 private:
  // Compares how two values are made; what they are made from is compared later.
  bool Same(const Twins& twins) {
    const auto [mine, theirs] = twins;
    if (mine == kNoValue || theirs == kNoValue) return mine == theirs;
    const auto *a = after_.constant(mine), *b = source_.constant(theirs);
    if (a != nullptr || b != nullptr) return a != nullptr && b != nullptr && AreSameOrBools(*a, *b);
    const NodeId n = after_.producer(mine), m = source_.producer(theirs);
    if (n == kNoNode || m == kNoNode) {
      const auto input = inputs_.find(after_.name(mine));
      return n == m && input != inputs_.end() && input->second == source_.name(theirs);
    }
    return SameNodes(n, m) && after_.output_index(mine) == source_.output_index(theirs);
  }

  bool SameNodes(NodeId n, NodeId m) {
    const onnx::NodeProto &a = after_.node(n), &b = source_.node(m);
    const auto mine = after_.inputs(n), theirs = source_.inputs(m);
    if (a.op_type() != b.op_type() || a.domain() != b.domain() || mine.size() != theirs.size() ||
        !SameAttributes(a, b)) {
      return false;
    }
    for (size_t k = 0; k < mine.size(); ++k) open_.push_back({mine[k], theirs[k]});
    return true;
  }

  // Returns true if the constants are the same, or bools of one shape.
  static bool AreSameOrBools(const onnx::TensorProto& a, const onnx::TensorProto& b) {
    if (SameData(a, b)) return true;
    const bool bools = a.data_type() == onnx::TensorProto::BOOL && b.data_type() == a.data_type();
    return bools && std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
  }

  const Graph &source_, &after_;
  absl::flat_hash_map<std::string, std::string> inputs_;  // of the converted model to the source's
  std::vector<Twins> open_;                               // to be compared
  absl::flat_hash_set<Twins> seen_;
};

}  // namespace

bool DifferInStoredBoolsOnly(const Graph& source, const Graph& after, const Manifest& relation) {
  return Comparer(source, after, relation).Run();
}

}  // namespace kvlift
