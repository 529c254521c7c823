// The rules for single nodes. Each appends a finding for what is provably wrong by the declared or
// inferred types and shapes.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "lint/lint.h"

namespace kvlift {

// Checks a TensorScatter node: mode, axis, shapes and types of cache and update, and write_indices
// with their constant values (KV120 to KV125). Source: ONNX TensorScatter-24.
void LintTensorScatter(const Graph& graph, NodeId node, std::vector<Lint>* lints);
// Checks an Attention node: ranks, head counts, batch, lengths, past, nonpad_kv_seqlen, mask and
// causal alignment (KV110 to KV119). Source: ONNX Attention-23, Attention-24.
void LintAttention(const Graph& graph, NodeId node, std::vector<Lint>* lints);

// Returns the value from which Identity, Squeeze, Unsqueeze and Reshape nodes alone make v; v
// itself if another node makes it. Does not check what a Reshape does.
ValueId SeeThroughViews(const Graph& graph, ValueId v);

// Appends a finding about a node.
void AddLint(const Graph& graph, NodeId node, std::string_view code, std::string text,
             std::vector<Lint>* lints, Severity severity = Severity::kError);

}  // namespace kvlift
