// The rules for single nodes. Each adds what it can prove wrong.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "lint/lint.h"

namespace kvlift {

// Source: ONNX TensorScatter-24.
void LintTensorScatter(const Graph& graph, NodeId node, std::vector<Lint>* lints);
// Source: ONNX Attention-23, -24.
void LintAttention(const Graph& graph, NodeId node, std::vector<Lint>* lints);

// Where a value comes from that only got another name or axes of extent 1.
ValueId SeeThroughViews(const Graph& graph, ValueId v);

void AddLint(const Graph& graph, NodeId node, std::string_view code, std::string text,
             std::vector<Lint>* lints, Severity severity = Severity::kError);

}  // namespace kvlift
