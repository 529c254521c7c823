#include "kvlift/reports/report_drawing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

namespace kvlift::cli {
namespace {

// Limits that keep a drawing on a page.
constexpr size_t kMostNodes = 22, kMostBorder = 8;
constexpr int kFarthest = 5;  // steps from a cache or an attention

class Chooser {
 public:
  Chooser(const Graph& graph, const std::vector<Fate>& fates, DrawnNode::Mark gone)
      : graph_(graph), fates_(fates), gone_(gone) {}

  Drawing Run(const LayerValues& layer, bool in_place) {
    Choose(Seeds(layer));
    AddBorder();
    for (const NodeId n : chosen_) AddNode(n);
    for (const NodeId n : chosen_) AddEdges(n);
    AddCacheEdges(layer, in_place);
    return std::move(drawing_);
  }

 private:
  // Nodes that compute integers, shapes or constants are not drawn.
  bool IsShown(NodeId n) const {
    if (graph_.Is(n, "Constant")) return false;
    for (const ValueId v : graph_.outputs(n)) {
      if (v == kNoValue) continue;
      const TensorType& type = graph_.type(v);
      if (type.elem_type != 0 && !IsFloatType(type.elem_type)) return false;
      if (type.shape && type.shape->size() < 2) return false;
    }
    return true;
  }

  bool IsGone(NodeId n) const { return fates_.empty() || fates_[n] == Fate::kGone; }

  std::vector<NodeId> Seeds(const LayerValues& layer) const {
    std::vector<NodeId> seeds;
    for (const std::string& name : layer.presents) {
      const ValueId v = graph_.Find(name);
      if (v != kNoValue && graph_.producer(v) != kNoNode) seeds.push_back(graph_.producer(v));
    }
    for (const std::string& name : layer.pasts) {
      const ValueId v = graph_.Find(name);
      if (v == kNoValue) continue;
      for (const Use& use : graph_.uses(v)) {
        if (use.node != kNoNode && IsShown(use.node)) seeds.push_back(use.node);
      }
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto& names = layer.nodes;
      if (std::find(names.begin(), names.end(), graph_.NodeName(n)) != names.end()) {
        seeds.push_back(n);
      }
    }
    return seeds;
  }

  template <typename Visit>
  void ForReaders(NodeId n, Visit visit) const {
    for (const ValueId v : graph_.outputs(n)) {
      if (v == kNoValue) continue;
      for (const Use& use : graph_.uses(v)) {
        if (use.node != kNoNode) visit(use.node);
      }
    }
  }

  template <typename Visit>
  void ForMakers(NodeId n, Visit visit) const {
    for (const ValueId v : graph_.inputs(n)) {
      if (v != kNoValue && graph_.producer(v) != kNoNode) visit(graph_.producer(v));
    }
  }

  // Walks up from the seeds and down from the seeds, but never up and then down, which would lead
  // to other layers.
  void Choose(const std::vector<NodeId>& seeds) {
    struct Step {
      NodeId node;
      int distance;
      bool up, down;
    };
    std::deque<Step> queue;
    for (const NodeId n : seeds) queue.push_back({n, 0, true, true});
    std::set<NodeId> seen;
    while (!queue.empty() && chosen_.size() < kMostNodes) {
      const Step step = queue.front();
      queue.pop_front();
      if (!seen.insert(step.node).second) continue;
      chosen_.insert(step.node);
      if (step.distance == kFarthest) continue;
      const auto add = [&](NodeId n, bool up) {
        if (IsGone(n) && IsShown(n)) queue.push_back({n, step.distance + 1, up, !up});
      };
      if (step.up) ForMakers(step.node, [&](NodeId n) { add(n, true); });
      if (step.down) ForReaders(step.node, [&](NodeId n) { add(n, false); });
    }
  }

  // Adds the operands of the chosen nodes, and the readers of the last ones.
  void AddBorder() {
    std::vector<NodeId> border;
    const auto add = [&](NodeId n) {
      const bool known = std::find(border.begin(), border.end(), n) != border.end();
      if (chosen_.count(n) == 0 && !known && IsShown(n)) border.push_back(n);
    };
    for (const NodeId n : chosen_) ForMakers(n, add);
    for (const NodeId n : chosen_) {
      bool read = false;
      ForReaders(n, [&](NodeId m) { read = read || chosen_.count(m) > 0; });
      if (!read) ForReaders(n, add);
    }
    for (size_t k = 0; k < std::min(border.size(), kMostBorder); ++k) chosen_.insert(border[k]);
  }

  void AddNode(NodeId n) {
    DrawnNode node{graph_.node(n).op_type(), graph_.NodeName(n), DrawnNode::Mark::kKept};
    if (!fates_.empty() && fates_[n] == Fate::kGone) node.mark = gone_;
    if (!fates_.empty() && fates_[n] == Fate::kChanged) node.mark = DrawnNode::Mark::kChanged;
    places_[n] = drawing_.nodes.size();
    drawing_.nodes.push_back(std::move(node));
  }

  void AddEdge(size_t from, size_t to, bool alias = false) {
    for (const DrawnEdge& e : drawing_.edges) {
      if (e.from == from && e.to == to && e.alias == alias) return;
    }
    drawing_.edges.push_back({from, to, alias});
  }

  void AddEdges(NodeId n) {
    for (const ValueId v : graph_.inputs(n)) {
      if (v == kNoValue) continue;
      const auto maker = places_.find(graph_.producer(v));
      if (maker != places_.end()) {
        AddEdge(maker->second, places_[n]);
      } else if (graph_.is_graph_input(v)) {
        AddEdge(ValuePlace("input", graph_.name(v)), places_[n]);
      }
    }
  }

  size_t ValuePlace(const char* kind, const std::string& name) {
    const auto [it, added] = values_.try_emplace(kind + name, drawing_.nodes.size());
    if (added) drawing_.nodes.push_back({kind, name, DrawnNode::Mark::kValue});
    return it->second;
  }

  void AddCacheEdges(const LayerValues& layer, bool in_place) {
    for (size_t k = 0; k < layer.presents.size(); ++k) {
      const ValueId present = graph_.Find(layer.presents[k]);
      if (present == kNoValue) continue;
      const auto maker = places_.find(graph_.producer(present));
      const size_t to = ValuePlace("output", layer.presents[k]);
      if (maker != places_.end()) AddEdge(maker->second, to);
      if (in_place && k < layer.pasts.size()) {
        AddEdge(ValuePlace("input", layer.pasts[k]), to, true);
      }
    }
  }

  const Graph& graph_;
  const std::vector<Fate>& fates_;
  const DrawnNode::Mark gone_;
  std::set<NodeId> chosen_;
  std::map<NodeId, size_t> places_;
  std::map<std::string, size_t> values_;
  Drawing drawing_;
};

}  // namespace

Drawing DrawLayer(const Graph& graph, const std::vector<Fate>& fates, DrawnNode::Mark gone,
                  const LayerValues& layer, bool in_place) {
  return Chooser(graph, fates, gone).Run(layer, in_place);
}

}  // namespace kvlift::cli
