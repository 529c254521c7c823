// Holds the proof against mutants: models with one small change each (verify/mutants/mutants.h).
#pragma once

#include <memory>

#include "gtest/gtest.h"
#include "ir/graph.h"
#include "proof/prove/prove_conversion.h"
#include "support/proof_pair.h"
#include "verify/mutants/mutant_maker.h"
#include "verify/mutants/mutants.h"

namespace kvlift {

// Fails the test for each mutant of `after` that is proved to be equal to the source. Returns how
// many were tried: those that change places or lengths. Mutants that change numbers alone are left
// to the plans, and those that are the same model in some cases may be proved.
inline int ExpectNoMutantProved(const onnx::ModelProto& source,
                                const std::shared_ptr<const onnx::ModelProto>& after,
                                const Manifest& relation, MutantLimits limits) {
  const auto graph = Graph::Build(after);
  EXPECT_TRUE(graph.ok());
  if (!graph.ok()) return 0;
  limits.everywhere = true;
  int tried = 0;
  for (const Mutant& mutant : MakeMutants(*graph, relation, limits)) {
    if (!mutant.equivalent.empty() || mutant.equivalent_if || mutant.guard) continue;
    if (mutant.detector != Detector::kPlans) continue;
    ++tried;
    const Proof proof = ProveConversion(source, *BuildMutant(*graph, mutant), relation);
    EXPECT_NE(Unproved(proof), "") << mutant.group << ": " << mutant.name;
  }
  return tried;
}

// Returns `limits` with those that the relation sets.
inline MutantLimits LimitsOf(const Manifest& relation, MutantLimits limits = {}) {
  limits.ragged = !relation.uniform;
  limits.one_length = relation.uniform_reason;
  return limits;
}

}  // namespace kvlift
