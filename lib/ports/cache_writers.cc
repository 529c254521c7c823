#include "ports/cache_writers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"
#include "ports/views.h"

namespace kvlift::ports {
namespace {

constexpr std::string_view kOfSource =
    "; `convert --target genai-static` makes such a model of its source";

class WriterReader {
 public:
  WriterReader(const Graph& graph, std::vector<CacheWriter>* writers)
      : graph_(graph), writers_(*writers) {}

  std::optional<Finding> Run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!graph_.Is(n, "TensorScatter")) continue;
      if (auto refusal = AddWriter(n)) return refusal;
    }
    if (writers_.empty()) return NoWriter();
    return OtherCache();
  }

 private:
  Finding NoWriter() const {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto scopes = CollectScopes(graph_.node(n));
      if (!scopes.ok()) continue;
      for (const Scope& scope : *scopes) {
        const auto& nodes = scope.graph->node();
        const auto found = std::find_if(nodes.begin(), nodes.end(), [](const auto& node) {
          return node.op_type() == "TensorScatter";
        });
        if (found == nodes.end()) continue;
        return Refusal(graph_, n,
                       fmt::format("TensorScatter {} stands in a body of {}",
                                   found->name().empty() ? found->output(0) : found->name(),
                                   Named(graph_, n)));
      }
    }
    return Refusal(graph_, kNoNode, fmt::format("no TensorScatter writes a cache{}", kOfSource));
  }

  std::optional<Finding> AddWriter(NodeId n) {
    CacheWriter writer{n, BehindViews(graph_, graph_.inputs(n)[0]), kNoValue, graph_.outputs(n)[0]};
    if (auto refusal = CheckPast(writer)) return refusal;
    for (const ValueId output : graph_.graph_outputs()) {
      if (BehindViews(graph_, output) != writer.written) continue;
      if (writer.present != kNoValue) {
        return Refusal(graph_, n,
                       fmt::format("{} hands {} back twice, as {} and as {}", Named(graph_, n),
                                   graph_.name(writer.past), graph_.name(writer.present),
                                   graph_.name(output)));
      }
      writer.present = output;
    }
    if (writer.present == kNoValue) {
      return Refusal(graph_, n,
                     fmt::format("no output hands back what {} writes into {}", Named(graph_, n),
                                 graph_.name(writer.past)));
    }
    if (StringAttribute(graph_.node(n), "mode", "linear") == "circular") {
      return Refusal(graph_, n,
                     fmt::format("{} is a ring, and static_cache has no word for rings (mode "
                                 "\"circular\" of {})",
                                 graph_.name(writer.past), Named(graph_, n)));
    }
    writers_.push_back(writer);
    return std::nullopt;
  }

  std::optional<Finding> CheckPast(const CacheWriter& writer) const {
    const ValueId past = writer.past;
    for (const CacheWriter& other : writers_) {
      if (other.past != past && other.written != past) continue;
      return Refusal(graph_, writer.node,
                     fmt::format("two nodes write into {}, {} and {}", graph_.name(other.past),
                                 Named(graph_, other.node), Named(graph_, writer.node)));
    }
    if (graph_.is_graph_input(past)) return std::nullopt;
    const NodeId maker = graph_.producer(past);
    return Refusal(
        graph_, writer.node,
        fmt::format("{} writes into {}, which is no input of the model{}",
                    Named(graph_, writer.node), graph_.name(past),
                    maker == kNoNode ? "" : fmt::format(" but made by {}", Named(graph_, maker))));
  }

  // Returns the positions of the operands from which a node only moves elements into this result.
  std::vector<size_t> Moved(NodeId n, int output) const {
    const auto is = [&](std::initializer_list<const char*> ops) {
      return std::any_of(ops.begin(), ops.end(), [&](const char* op) { return graph_.Is(n, op); });
    };
    std::vector<size_t> operands;
    const size_t count = graph_.inputs(n).size();
    if (graph_.node(n).op_type().find("Attention") != std::string::npos) {
      // The results behind the first are presents, and the operands behind the values hold pasts.
      for (size_t k = 3; output > 0 && k < count; ++k) operands.push_back(k);
    } else if (is({"Concat"})) {
      for (size_t k = 0; k < count; ++k) operands.push_back(k);
    } else if (is({"Where"})) {
      operands = {1, 2};
    } else if (is({"ScatterND", "ScatterElements", "Scatter", "Slice", "Split", "Gather", "Pad",
                   "Expand", "Identity", "Reshape", "Flatten", "Transpose", "Squeeze",
                   "Unsqueeze"})) {
      operands = {0};
    }
    return operands;
  }

  bool Updates(NodeId n) const {
    for (const char* op : {"Concat", "Where", "ScatterND", "ScatterElements", "Scatter", "Pad"}) {
      if (graph_.Is(n, op)) return true;
    }
    return graph_.node(n).op_type().find("Attention") != std::string::npos;
  }

  bool MayBeCache(ValueId v) const {
    const TensorType& type = graph_.type(v);
    return graph_.is_graph_input(v) && type.shape && type.shape->size() >= 3;
  }

  // Returns a refusal for an output that other nodes make of an input by moving its rows.
  std::optional<Finding> OtherCache() const {
    absl::flat_hash_set<ValueId> known;
    for (const CacheWriter& writer : writers_) {
      known.insert(writer.past);
      known.insert(writer.present);
    }
    for (const ValueId output : graph_.graph_outputs()) {
      if (known.contains(output)) continue;
      if (auto refusal = OtherCache(output, known)) return refusal;
    }
    return std::nullopt;
  }

  std::optional<Finding> OtherCache(ValueId output,
                                    const absl::flat_hash_set<ValueId>& known) const {
    // Each value with the last node on the way to the output that updates it.
    absl::flat_hash_map<ValueId, NodeId> seen = {{output, kNoNode}};
    std::vector<ValueId> found = {output};
    for (size_t next = 0; next < found.size(); ++next) {
      const ValueId v = found[next];
      const NodeId n = graph_.producer(v), writer = seen.at(v);
      if (n == kNoNode && writer != kNoNode && MayBeCache(v) && !known.contains(v)) {
        return Refusal(
            graph_, writer,
            fmt::format("{} makes {} of {}, and no TensorScatter writes it{}",
                        Named(graph_, writer), graph_.name(output), graph_.name(v), kOfSource));
      }
      if (n == kNoNode) continue;
      for (const size_t k : Moved(n, graph_.output_index(v))) {
        if (k >= graph_.inputs(n).size()) continue;
        const ValueId source = graph_.inputs(n)[k];
        const NodeId last = writer == kNoNode && Updates(n) ? n : writer;
        if (source != kNoValue && seen.try_emplace(source, last).second) found.push_back(source);
      }
    }
    return std::nullopt;
  }

  const Graph& graph_;
  std::vector<CacheWriter>& writers_;
};

}  // namespace

std::optional<Finding> ReadCacheWriters(const Graph& graph, std::vector<CacheWriter>* writers) {
  return WriterReader(graph, writers).Run();
}

Finding Refusal(const Graph& graph, NodeId node, std::string text) {
  Finding finding{"KV254", std::move(text), {}, {}};
  if (node != kNoNode) finding.nodes.push_back(graph.NodeName(node));
  return finding;
}

std::string Named(const Graph& graph, NodeId node) {
  return fmt::format("{} {}", graph.node(node).op_type(), graph.NodeName(node));
}

}  // namespace kvlift::ports
