// LIBS: verify
#include "verify/steps/plans.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace kvlift {
namespace {

// Returns true if a plan has a step of several tokens, behind a past or as the first one, whose
// last token is in the last slot.
bool ChunkEndsInTheLastSlot(const PlanLimits& limits, bool first) {
  const std::vector<Plan> plans = MakePlans(limits);
  return std::any_of(plans.begin(), plans.end(), [&](const Plan& plan) {
    return std::any_of(plan.steps.begin(), plan.steps.end(), [&](const StepSpec& step) {
      return step.new_tokens > 1 && (step.past[0] == 0) == first &&
             step.longest() + step.new_tokens == plan.capacity;
    });
  });
}

// A model that shows the last slot to all queries of a chunk differs in such steps only.
TEST(PlansTest, ChunksEndInTheLastSlotOfAFreeCapacity) {
  PlanLimits limits;
  EXPECT_TRUE(ChunkEndsInTheLastSlot(limits, false));
  EXPECT_TRUE(ChunkEndsInTheLastSlot(limits, true));
}

TEST(PlansTest, ChunksEndInTheLastSlotOfAGivenCapacity) {
  PlanLimits limits;
  limits.free_capacity = false;
  limits.capacity = 8;
  EXPECT_TRUE(ChunkEndsInTheLastSlot(limits, false));
  EXPECT_TRUE(ChunkEndsInTheLastSlot(limits, true));
}

// A source that takes one token behind a past has no such chunk, but may have such a prompt.
TEST(PlansTest, NoChunkWhereOnlySingleTokensHaveAPast) {
  PlanLimits limits;
  limits.free_capacity = false;
  limits.capacity = 8;
  limits.tokens_with_past = 1;
  EXPECT_FALSE(ChunkEndsInTheLastSlot(limits, false));
  EXPECT_TRUE(ChunkEndsInTheLastSlot(limits, true));
}

}  // namespace
}  // namespace kvlift
