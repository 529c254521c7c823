#include "lower/lower.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/patch.h"
#include "ir/subgraphs.h"
#include "lower/lowering.h"
#include "lower/lowest_opset.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

using lower::Lowering;

bool DropsAttention(LowerTo to) {
  return to == LowerTo::kAttention23 || to == LowerTo::kDecomposed;
}

// Returns true if the node is one of the operators that the result must not have.
bool IsToLower(const onnx::NodeProto& node, LowerTo to) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return false;
  return node.op_type() == "TensorScatter" || (node.op_type() == "Attention" && DropsAttention(to));
}

// Returns the first node in a body that would have to be lowered; empty if no body has one.
absl::StatusOr<std::string> InBody(const Graph& graph, LowerTo to) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    KV_ASSIGN_OR_RETURN(const std::vector<Scope> scopes, CollectScopes(graph.node(n)));
    for (const Scope& scope : scopes) {
      for (const onnx::NodeProto& node : scope.graph->node()) {
        if (!IsToLower(node, to)) continue;
        return fmt::format("{} {} is not lowered: it stands in a body of {} {}", node.op_type(),
                           node.name().empty() ? node.output(0) : node.name(),
                           graph.node(n).op_type(), graph.NodeName(n));
      }
    }
  }
  return std::string();
}

// Lowers all nodes, and counts them in *result.
void LowerNodes(Lowering& l, LowerTo to, Lowered* result) {
  const Graph& graph = l.graph();
  const auto scatter =
      to == LowerTo::kWhere ? lower::ScatterForm::kWhere : lower::ScatterForm::kScatterNd;
  const auto attention = to == LowerTo::kDecomposed ? lower::AttentionForm::kDecomposed
                                                    : lower::AttentionForm::kOpset23;
  for (NodeId n = 0; n < graph.num_nodes() && !l.refusal(); ++n) {
    if (graph.Is(n, "TensorScatter")) {
      result->scatters += lower::LowerTensorScatter(l, n, scatter) ? 1 : 0;
    } else if (graph.Is(n, "Attention") && DropsAttention(to)) {
      result->attentions += lower::LowerAttention(l, n, attention) ? 1 : 0;
    } else if (graph.Is(n, "Attention")) {
      lower::KeepAttention(l, n);
    }
  }
}

Finding Refusal(std::string text, std::vector<std::string> nodes = {}) {
  return {"KV253", std::move(text), std::move(nodes), {}};
}

// Gives the result its opset. Returns why it cannot have the one that is asked for.
std::optional<Finding> ChooseOpset(const Lowering& l, const LowerOptions& options,
                                   Lowered* result) {
  const int64_t own = l.graph().opset();
  const lower::LowestOpset lowest = lower::FindLowestOpset(*result->model, l.pinned());
  const int64_t usual = options.to == LowerTo::kAttention23 ? 23 : 22;
  result->opset = options.opset.value_or(std::min(own, std::max(usual, lowest.version)));
  if (result->opset > own) {
    return Refusal(fmt::format("opset {} is newer than the model's, {}", result->opset, own));
  }
  if (result->opset < lowest.version) {
    return Refusal(fmt::format("{} {} needs opset {}", lowest.op_type, lowest.node, lowest.version),
                   {lowest.node});
  }
  lower::SetOpset(result->opset, &*result->model);
  return std::nullopt;
}

// A manifest in the metadata says that TensorScatter writes the caches, which is wrong for the
// result.
void DropManifest(onnx::ModelProto* model) {
  auto* props = model->mutable_metadata_props();
  for (int k = props->size() - 1; k >= 0; --k) {
    if (props->Get(k).key().rfind("kvlift.", 0) == 0) props->DeleteSubrange(k, 1);
  }
}

Lowered Refused(Finding refusal) {
  Lowered result;
  result.refusal = std::move(refusal);
  return result;
}

}  // namespace

std::optional<LowerTo> ReadLowerTo(std::string_view word) {
  if (word == "scatternd") return LowerTo::kScatterNd;
  if (word == "where") return LowerTo::kWhere;
  if (word == "attention-23") return LowerTo::kAttention23;
  if (word == "decomposed") return LowerTo::kDecomposed;
  return std::nullopt;
}

absl::StatusOr<Lowered> Lower(const onnx::ModelProto& model, const LowerOptions& options) {
  auto source = std::make_shared<onnx::ModelProto>(model);
  if (model.functions_size() > 0) {
    KV_ASSIGN_OR_RETURN(*source, InlineFunctions(model));
  }
  // Declared ranks and types are used where a value has no form.
  if (auto inferred = InferShapes(*source); inferred.ok()) *source = *std::move(inferred);
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(source));
  if (graph.opset() < 23) {
    return Refused(Refusal(fmt::format(
        "nothing to lower: opset {} has neither TensorScatter nor Attention", graph.opset())));
  }
  KV_ASSIGN_OR_RETURN(std::string body, InBody(graph, options.to));
  if (!body.empty()) return Refused(Refusal(std::move(body)));
  Lowering l(graph);
  Lowered result;
  LowerNodes(l, options.to, &result);
  if (l.refusal()) return Refused(*l.refusal());
  if (result.scatters + result.attentions == 0) {
    return Refused(
        Refusal(DropsAttention(options.to)
                    ? "nothing to lower: the model has no TensorScatter, and no Attention to change"
                    : "nothing to lower: the model has no TensorScatter"));
  }
  l.patch().new_nodes = l.nodes().TakeNodes();
  l.patch().new_initializers = l.nodes().TakeInitializers();
  KV_ASSIGN_OR_RETURN(result.model, Apply(graph, l.patch()));
  if (auto refusal = ChooseOpset(l, options, &result)) return Refused(*std::move(refusal));
  DropManifest(&*result.model);
  return result;
}

}  // namespace kvlift
