// The interface through which a Driver reports every step that it runs, so that it can be written
// down.
#pragma once

#include <string>
#include <vector>

#include "exec/session/session.h"
#include "verify/inputs/step.h"
#include "verify/inputs/tensor_rows.h"
#include "verify/steps/plans.h"

namespace kvlift {

class PlanWatcher {
 public:
  virtual ~PlanWatcher() = default;

  // The steps that follow are those of `plan`: first all that the source runs, then the converted
  // model's.
  virtual void Begin(const Plan& plan) = 0;
  // The source ran a step, of all sequences or of one. Caches are as a host feeds and gets them.
  virtual void SourceRan(const StepSpec& step, const exec::Feeds& feeds,
                         const exec::Fetches& fetches) = 0;
  // The converted model ran a step; it is compared next.
  virtual void ConvertedRan(const StepSpec& step, const exec::Feeds& feeds,
                            const exec::Fetches& fetches) = 0;
  // The elements of `box` of that step's output have to be `want`, within bounds (doubles of the
  // same shape). An empty box: all elements. computed: the bounds that the oracle computed, not
  // finite where it has none; absent: it has none at all.
  virtual void Compared(const std::string& output, const std::vector<Range>& box,
                        const exec::View& want, const exec::Tensor& bounds,
                        const exec::View& computed) = 0;
};

}  // namespace kvlift
