// The rules of runtimes for a finished model, beyond the operator texts. `convert --target` makes
// models that satisfy them; these checks apply to any model.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "lint/lint.h"

namespace kvlift {

// Returns the profile for "ort", "genai", "genai-static", "tensorrt" or "portable"; nullopt for
// other names, also for "spec", which has no rules of its own.
std::optional<Profile> FindProfile(std::string_view name);

// Appends the findings KV131 to KV141 for a runtime. The graph must have inferred shapes: rules are
// skipped where shapes or types are unknown.
void LintTarget(const Graph& graph, Profile profile, std::vector<Lint>* lints);

}  // namespace kvlift
