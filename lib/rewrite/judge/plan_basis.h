// The input of all judging functions: the analysis, the buffers, and the scheme under which they
// judge. They change none of them. Internal to lib/rewrite.
#pragma once

#include <vector>

#include "rewrite/plan/conversion_plan.h"
#include "sym/emit/emission_probe.h"

namespace kvlift::internal {

struct PlanBasis {
  PlanBasis(const Analysis& analysis, const std::vector<PlannedCache>& planned,
            const ResolvedOptions& resolved, const SharedExtents& shared, Scheme chosen);

  // Returns true if attention is given the valid rows of a buffer, not the whole buffer.
  bool prefix_read() const { return options.read != ReadForm::kFull; }
  bool views() const { return uniform && prefix_read(); }  // see ConversionPlan::views
  // Returns true if some axis of the input is as long as the keys.
  bool IsKeyLengthMask(ValueId v) const;

  const Analysis& a;
  const std::vector<PlannedCache>& caches;  // by index of Analysis::updates
  const ResolvedOptions& options;
  const SharedExtents& extents;
  const Graph& graph;
  sym::Forms& forms;  // interns expressions, and computes forms when they are asked for
  sym::Pool& pool;
  const bool derived;         // P is computed from the width of an input of the source
  const bool uniform;         // one P for all sequences of a batch
  const bool keep_unguarded;  // see Scheme::kUniformKeepUnguarded
  bool growing = false;       // some cache grows
  bool fifos = false;         // some cache is a Fifo
  bool rings = false;         // some growing cache becomes a ring
  sym::EmissionProbe probe;   // with the bindings that EmitPlan makes
};

}  // namespace kvlift::internal
