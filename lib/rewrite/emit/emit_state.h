// The state that the parts of emission share: the plan, the patch that they add to, and the values
// that they made for the caches. Internal to lib/rewrite.
#pragma once

#include <vector>

#include "ir/node_builder.h"
#include "ir/patch.h"
#include "rewrite/emit/emission.h"
#include "rewrite/plan/conversion_plan.h"
#include "sym/emit/emit.h"

namespace kvlift::internal {

struct EmitState {
  EmitState(const Analysis& analysis, const ConversionPlan& planned)
      : a(analysis),
        plan(planned),
        graph(*analysis.graph),
        forms(*analysis.forms),
        nodes(graph),
        emitter(forms, nodes),
        caches(planned.caches.size()) {}

  // Returns the record of an element of ConversionPlan::caches.
  EmittedCache& Made(const PlannedCache& cache) { return caches[&cache - plan.caches.data()]; }

  const Analysis& a;
  const ConversionPlan& plan;
  const Graph& graph;
  sym::Forms& forms;
  NodeBuilder nodes;
  sym::Emitter emitter;              // adds to `nodes`
  Patch patch;                       // its new nodes and initialisers are in `nodes`
  std::vector<EmittedCache> caches;  // by index of ConversionPlan::caches
};

}  // namespace kvlift::internal
