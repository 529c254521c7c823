#include "rewrite/lower/fused/fused_operators.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "onnxio/model/functional_form.h"
#include "rewrite/lower/fused/fused_lowering.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace fused {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

NodeBuilder::Attributes Without(const onnx::NodeProto& node,
                                std::initializer_list<std::string_view> names) {
  NodeBuilder::Attributes kept;
  for (const auto& attribute : node.attribute()) {
    const std::string_view name = attribute.name();
    if (std::find(names.begin(), names.end(), name) == names.end()) kept.push_back(attribute);
  }
  return kept;
}

// RMSNormalization-23 computes the same, with the same defaults.
bool ReplaceNormalization(Lowering& l, NodeId n) {
  const Graph& graph = l.graph();
  if (!graph.Is(n, "SimplifiedLayerNormalization") || graph.inputs(n).size() != 2) return false;
  const auto outputs = graph.outputs(n);
  for (size_t k = 1; k < outputs.size(); ++k) {
    if (outputs[k] != kNoValue && !graph.uses(outputs[k]).empty()) return false;
  }
  l.Scope(n);
  l.patch().remove_nodes.insert(n);
  l.nodes().AddNamed("RMSNormalization", {l.in(n, 0), l.in(n, 1)}, "RMSNormalization", l.out(n, 0),
                     Without(graph.node(n), {}));
  return true;
}

// An operator whose cache is not converted, and a text that says why and what is needed instead.
struct Carrier {
  std::string_view domain, op, text;  // any domain if empty
};

constexpr Carrier kCarriers[] = {
    {"com.microsoft", "DecoderMaskedSelfAttention",
     "carries a buffer that past and present share; needs an export for greedy decoding with "
     "standard operators"},
    {"com.microsoft", "DecoderMaskedMultiHeadAttention",
     "carries a shared buffer and the beams' way through it (cache_indirection); needs beams that "
     "are gathered before the append, and standard operators"},
    {"com.microsoft", "PagedAttention",
     "carries blocks of a common pool and a table of blocks; needs one contiguous buffer per "
     "sequence"},
    {"com.microsoft", "SparseAttention",
     "carries a buffer and a layout of the blocks that are seen; needs a mask that says the same"},
    {"", "KeyValueCache",
     "changes its cache in place, which is no output; needs past and present as input and output"},
    {"LlmExporter", "FusedAttention",
     "keeps its cache inside the runtime; needs past and present as input and output"},
};

bool ReportCarrier(Lowering& l, NodeId n) {
  const auto& node = l.graph().node(n);
  const bool told = IsKeyValueCache(node) && !l.out(n, KeyValueCacheSlots::kPresentCache).empty();
  if (told) return false;  // UnpackCaches reports it
  for (const Carrier& carrier : kCarriers) {
    if (node.op_type() != carrier.op) continue;
    const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
    if (standard || (!carrier.domain.empty() && node.domain() != carrier.domain)) continue;
    l.Report(n, std::string(carrier.text));
    return true;
  }
  return false;
}

}  // namespace

bool LowerAttention(Lowering& l, NodeId n) {
  const Graph& graph = l.graph();
  const onnx::NodeProto& node = graph.node(n);
  if (!graph.Is(n, "Attention") || !l.has(n, 4) || !l.has(n, 5)) return false;
  if (l.out(n, 1).empty() || l.out(n, 2).empty()) return false;
  const int rank = l.Rank(n, 0);
  const int64_t q_heads = IntAttribute(node, "q_num_heads", 0);
  const int64_t kv_heads = IntAttribute(node, "kv_num_heads", 0);
  if (rank != l.Rank(n, 1) || rank != l.Rank(n, 2) || (rank != 4 && rank != 3) ||
      (rank == 3 && (q_heads < 1 || kv_heads < 1))) {
    l.Refuse(n, "needs queries, keys and values of rank 4, or of rank 3 with head counts");
    return true;
  }
  const auto misses = [&](const char* name, int input) {
    return rank == 4 && FindAttribute(node, name) != nullptr &&
           IntAttribute(node, name, 0) != l.Extent(n, input, 1);
  };
  if (misses("q_num_heads", 0) || misses("kv_num_heads", 1)) {
    l.Refuse(n, "needs head counts of its operands where these have rank 4");
    return true;
  }
  if (!l.out(n, 3).empty()) {
    l.Refuse(n, "needs no output of scores");
    return true;
  }
  for (const char* window : {"left_window_size", "right_window_size"}) {
    if (IntAttribute(node, window, -1) == -1) continue;
    l.Refuse(n, fmt::format("needs no {}", window));
    return true;
  }
  l.Scope(n);
  const bool flat = rank == 3;
  const std::string q = flat ? l.SplitHeads(l.in(n, 0), q_heads, "query") : l.in(n, 0);
  const std::string k = flat ? l.SplitHeads(l.in(n, 1), kv_heads, "key") : l.in(n, 1);
  const std::string v = flat ? l.SplitHeads(l.in(n, 2), kv_heads, "value") : l.in(n, 2);
  NodeBuilder& nodes = l.nodes();
  const auto append = MakeAttribute("axis", int64_t{2});
  nodes.AddNamed("Concat", {l.in(n, 4), k}, "present_key", l.out(n, 1), {append});
  nodes.AddNamed("Concat", {l.in(n, 5), v}, "present_value", l.out(n, 2), {append});
  std::string mask = l.in(n, 3);
  if (IntAttribute(node, "is_causal", 0) != 0) {
    const std::string order = l.CausalOrder(l.in(n, 4), q);
    if (mask.empty()) {
      mask = order;
    } else if (l.Type(n, 3) == onnx::TensorProto::BOOL) {
      mask = nodes.Add("And", {order, mask}, "mask");
    } else {
      mask = l.Masked(order, mask, kNever, l.Type(n, 3));
    }
  }
  NodeBuilder::Inputs inputs = {q, l.out(n, 1), l.out(n, 2)};
  if (!mask.empty()) inputs.push_back(mask);
  const auto attributes = Without(node, {"is_causal", "q_num_heads", "kv_num_heads"});
  l.patch().remove_nodes.insert(n);
  const int64_t size = l.Extent(n, 2, 2) / (flat ? kv_heads : 1) * q_heads;
  if (flat) {
    l.JoinHeads(nodes.Add("Attention", inputs, "Attention", attributes), size, l.out(n, 0));
  } else {
    nodes.AddNamed("Attention", inputs, "Attention", l.out(n, 0), attributes);
  }
  return true;
}

// Returns true if rows of a real graph input are among the value's, as those of a past are.
bool HoldsRowsOfInput(sym::Forms& forms, ValueId v) {
  const Graph& graph = forms.graph();
  const sym::Form& form = forms.Of(v);
  if (!form.known_rank) return false;
  const std::vector<ValueId> sources = sym::SourcesOf(form.element);
  return std::any_of(sources.begin(), sources.end(), [&](ValueId source) {
    return graph.is_graph_input(source) && IsFloatType(graph.type(source).elem_type);
  });
}

// Lowers an Attention over [B, T, N * D] that the graph puts behind a past to one with an axis of
// heads.
bool SplitFlatAttention(Lowering& l, sym::Forms& forms, NodeId n) {
  const Graph& graph = l.graph();
  const onnx::NodeProto& node = graph.node(n);
  if (!graph.Is(n, "Attention") || l.has(n, 4) || l.has(n, 5)) return false;
  for (int output = 1; output <= 3; ++output) {
    if (!l.out(n, output).empty()) return false;
  }
  const int64_t q_heads = IntAttribute(node, "q_num_heads", 0);
  const int64_t kv_heads = IntAttribute(node, "kv_num_heads", 0);
  if (q_heads < 1 || kv_heads < 1) return false;
  for (const int input : {0, 1, 2}) {
    if (l.Rank(n, input) != 3) return false;
  }
  if (!HoldsRowsOfInput(forms, graph.inputs(n)[1]) &&
      !HoldsRowsOfInput(forms, graph.inputs(n)[2])) {
    return false;
  }
  const int64_t size = l.Extent(n, 2, 2);
  if (size < 1 || size % kv_heads != 0) return false;
  l.Scope(n);
  NodeBuilder::Inputs inputs = {l.SplitHeads(l.in(n, 0), q_heads, "query"),
                                l.SplitHeads(l.in(n, 1), kv_heads, "key"),
                                l.SplitHeads(l.in(n, 2), kv_heads, "value")};
  if (l.has(n, 3) || l.has(n, 6)) inputs.push_back(l.in(n, 3));
  if (l.has(n, 6)) inputs.insert(inputs.end(), {"", "", l.in(n, 6)});
  const auto attributes = Without(node, {"q_num_heads", "kv_num_heads"});
  l.patch().remove_nodes.insert(n);
  l.JoinHeads(l.nodes().Add("Attention", inputs, "Attention", attributes),
              size / kv_heads * q_heads, l.out(n, 0));
  return true;
}

// Returns true if the node may have to be lowered. Most models have none.
bool MayMatter(const onnx::NodeProto& node) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return true;
  constexpr int kPast = 4;
  return node.op_type() == "SimplifiedLayerNormalization" || node.op_type() == "Einsum" ||
         (node.op_type() == "Attention" &&
          (node.input_size() > kPast || FindAttribute(node, "q_num_heads") != nullptr));
}

}  // namespace fused

absl::Status LowerFused(UnreadMasks unread, Normalised* result) {
  const auto& nodes = result->model.graph().node();
  if (std::none_of(nodes.begin(), nodes.end(), fused::MayMatter)) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(result->model)));
  fused::Lowering l(graph);
  sym::Forms forms(graph);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (fused::ReplaceNormalization(l, n) || fused::LowerAttention(l, n) ||
        fused::SplitFlatAttention(l, forms, n) || fused::LowerMultiHeadAttention(l, n) ||
        fused::LowerProjectedAttention(l, n) || fused::LowerGroupQueryAttention(l, n) ||
        fused::LowerEinsumProduct(l, n) || fused::ReportCarrier(l, n)) {
      continue;
    }
  }
  return l.Finish(unread, result);
}

}  // namespace kvlift
