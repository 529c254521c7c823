// Describes the results of the steps from lower to emit as text for people (StepTrace). Reads
// finished data only: nothing here computes a form or makes an expression, which would change later
// steps.
#pragma once

#include <string>
#include <vector>

#include "base/findings.h"
#include "contract/manifest.h"
#include "rewrite/convert/convert.h"
#include "rewrite/plan/conversion_plan.h"
#include "rewrite/recognise/analysis.h"
#include "rewrite/types/steps.h"

namespace kvlift {

// Returns 1-lower.onnxtxt: the lowered graph as an outline (onnxio/model/outline.h), below comments
// that say what the lowering took for granted and could not do. If the model could not be raised,
// the graph is that of the source.
std::vector<StepText> DescribeLowered(const Analysis& analysis);
// Returns 2-recognise.txt: the properties of each cache and each attention, or why it is refused.
// `inspection` is Report of the same analysis, with its caches and attentions in the same order.
std::vector<StepText> DescribeRecognised(const Analysis& analysis, const Inspection& inspection);
// Returns 3-plan.txt: what becomes of each cache, attention and input, or why the model is refused.
std::vector<StepText> DescribePlan(const Analysis& analysis, const ConversionPlan& plan);
// Returns 4-emit.onnxtxt, an outline of the model, and 4-emit.kv.json, its manifest.
std::vector<StepText> DescribeEmitted(const onnx::ModelProto& model, const Manifest& manifest);

// Returns "KV214 text", with the nodes and values that it names, escaped for a terminal.
std::string FindingLine(const Finding& finding);
// Appends a line "  KEY   TEXT" with aligned texts, escaped for a terminal, unless the text is
// empty.
void AddLine(std::string_view key, std::string_view text, std::string* to);

}  // namespace kvlift
