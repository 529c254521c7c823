// Which nodes of a model show what a conversion did to a layer.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "model_diff.h"
#include "report/report.h"

namespace kvlift::cli {

struct LayerValues {
  std::vector<std::string> pasts, presents;  // of the layer's caches
  std::vector<std::string> nodes;            // of its attention
};

// The nodes around the layer's caches and attention that are not kept, with what they border on.
// `gone` says what a node is that the other graph lacks: removed or added. Empty fates: there is no
// other graph. Alias edges lead from pasts to presents if `in_place`.
Drawing DrawLayer(const Graph& graph, const std::vector<Fate>& fates, DrawnNode::Mark gone,
                  const LayerValues& layer, bool in_place);

}  // namespace kvlift::cli
