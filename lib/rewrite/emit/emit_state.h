// What the parts of emission share: the plan, and the patch that they add to. Internal to
// lib/rewrite.
#pragma once

#include "ir/node_builder.h"
#include "ir/patch.h"
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
        emitter(forms, nodes) {}

  const Analysis& a;
  const ConversionPlan& plan;
  const Graph& graph;
  sym::Forms& forms;
  NodeBuilder nodes;
  sym::Emitter emitter;  // adds to `nodes`
  Patch patch;           // its new nodes and initialisers are in `nodes`
};

}  // namespace kvlift::internal
