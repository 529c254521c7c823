#include "rewrite/lower/normalise.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "onnxio/model/gated_sinks.h"
#include "onnxio/model/round_rows.h"
#include "rewrite/branches/merged_decoder.h"
#include "rewrite/lower/fused/fused_operators.h"
#include "rewrite/lower/key_value_cache.h"
#include "rewrite/lower/requantized_rows.h"
#include "rewrite/lower/simplified_norm.h"

namespace kvlift {

void Normalised::GiveReason(Finding* finding) const {
  for (const Finding& refusal : refusals) {
    if (finding->nodes.empty() || refusal.nodes.front() != finding->nodes.front()) continue;
    finding->code = refusal.code;
    finding->text = refusal.text;
    finding->nodes = refusal.nodes;
  }
}

bool Normalised::IsReplacement(const std::string& node) const {
  return std::any_of(origins.begin(), origins.end(),
                     [&](const Origin& origin) { return node.rfind(origin.prefix, 0) == 0; });
}

void Normalised::NameSource(std::vector<std::string>* nodes) const {
  std::vector<std::string> named;
  for (std::string& name : *nodes) {
    for (const Origin& origin : origins) {
      if (name.rfind(origin.prefix, 0) == 0) name = origin.node;
    }
    if (std::find(named.begin(), named.end(), name) == named.end()) {
      named.push_back(std::move(name));
    }
  }
  *nodes = std::move(named);
}

namespace {

// Removes negative extents, which some exporters write for extents that are not known. ONNX's shape
// inference would compare them with what it infers under later operator sets.
void ForgetNegativeExtents(onnx::GraphProto* graph) {
  for (auto* values :
       {graph->mutable_input(), graph->mutable_output(), graph->mutable_value_info()}) {
    for (onnx::ValueInfoProto& value : *values) {
      if (!value.type().tensor_type().has_shape()) continue;
      for (auto& dim :
           *value.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
        if (dim.has_dim_value() && dim.dim_value() < 0) dim.clear_dim_value();
      }
    }
  }
}

// Takes over what a pass made of the model.
absl::Status Take(absl::StatusOr<RewrittenModel> pass, Normalised* result) {
  KV_ASSIGN_OR_RETURN(RewrittenModel rewritten, std::move(pass));
  result->model = std::move(rewritten.model);
  for (auto& [prefix, node] : rewritten.replaced) result->origins.push_back({prefix, node});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Normalised> Normalise(onnx::ModelProto model, UnreadMasks unread) {
  Normalised result;
  result.model = std::move(model);
  ForgetNegativeExtents(result.model.mutable_graph());
  ReplaceSimplifiedNorms(&result.model);
  KV_RETURN_IF_ERROR(Unmerge(&result));
  KV_RETURN_IF_ERROR(LowerRequantizedRows(&result));
  KV_RETURN_IF_ERROR(Take(RoundRowsFirst(std::move(result.model)), &result));
  KV_RETURN_IF_ERROR(Take(KeyGatedSinks(std::move(result.model)), &result));
  KV_RETURN_IF_ERROR(UnpackCaches(&result));
  KV_RETURN_IF_ERROR(LowerFused(unread, &result));
  return result;
}

}  // namespace kvlift
