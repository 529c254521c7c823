// What a runtime asks of a finished model beyond the operator texts. `convert --target` makes
// models that keep to it; these rules look at any model, whoever made it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "lint/lint.h"

namespace kvlift {

// "ort", "genai", "genai-static", "tensorrt"; nullopt for other names, "spec" among them.
std::optional<Profile> FindProfile(std::string_view name);

// Shapes of the graph are inferred. Findings are KV131 to KV140.
void LintTarget(const Graph& graph, Profile profile, std::vector<Lint>* lints);

}  // namespace kvlift
