// Verdicts on pairs of models that are given as text.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "verify/judge/verify.h"

namespace kvlift {

// Fails the test if the text is not a model.
Model ModelOfText(const std::string& text);

VerifyReport VerdictOn(const std::string& before, const std::string& after,
                       const Manifest& relation);
// Returns the reason, the plans, and the mutants that were not detected, for messages of tests.
std::string Summary(const VerifyReport& report);
// Replaces every `from`, which must occur.
std::string With(const std::string& text, const std::string& from, const std::string& to);

// A cache of a relation of two models, with the same names and layout on both sides.
struct CacheEnds {
  std::string input, output, layout;
  UpdateKind kind = UpdateKind::kScatter;
  bool growing = false;
  std::string dtype = "float32";
};
Manifest RelationOf(const std::vector<CacheEnds>& caches, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs);
// Returns the relation of a source that appends to caches [B, N, P, D] of float32, pk and pv, by
// Concat and returns them as nk and nv, to a model that writes buffers of these names at the
// control input `at`. Both have the inputs `same` and the output logits.
Manifest OneLayerRelation(const std::vector<std::string>& same);
// Adds the control input `at`, which holds P of each sequence.
void AddControl(Manifest* relation);

}  // namespace kvlift
