// Chooses the nodes of a model that show what a conversion did to a layer.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "kvlift/inputs/model_diff.h"
#include "report/text/report.h"

namespace kvlift::cli {

// Names of values and nodes of one layer.
struct LayerValues {
  std::vector<std::string> pasts, presents;  // of the layer's caches
  std::vector<std::string> nodes;            // of its attention
};

// Draws the nodes around the layer's caches and attention that are not kept, with their neighbours.
// `fates` is by NodeId; empty: there is no other graph. `gone` is the mark of nodes that the other
// graph lacks. If `in_place`, alias edges lead from pasts to presents.
Drawing DrawLayer(const Graph& graph, const std::vector<Fate>& fates, DrawnNode::Mark gone,
                  const LayerValues& layer, bool in_place);

}  // namespace kvlift::cli
