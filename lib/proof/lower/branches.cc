#include "proof/lower/branches.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/subgraphs.h"
#include "proof/lower/inline_branch.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using onnx::GraphProto;
using onnx::ModelProto;
using onnx::NodeProto;
using sym::Expr;
using sym::Facts;

// Returns the part of a model that does not depend on any If. Its large constants become inputs.
ModelProto InFrontOfBranches(const ModelProto& model) {
  ModelProto part;
  part.set_ir_version(model.ir_version());
  *part.mutable_opset_import() = model.opset_import();
  GraphProto& graph = *part.mutable_graph();
  graph.set_name("front");
  *graph.mutable_input() = model.graph().input();
  absl::flat_hash_set<std::string> behind;
  for (const NodeProto& node : model.graph().node()) {
    const bool depends =
        HasBody(node) || std::any_of(node.input().begin(), node.input().end(),
                                     [&](const std::string& i) { return behind.contains(i); });
    if (depends) {
      behind.insert(node.output().begin(), node.output().end());
    } else {
      *graph.add_node() = node;
    }
  }
  // Conditions do not read large constants such as weights.
  constexpr int64_t kSmall = 64;
  for (const auto& tensor : model.graph().initializer()) {
    int64_t size = 1;
    for (int64_t dim : tensor.dims()) size *= dim;
    if (size <= kSmall) {
      *graph.add_initializer() = tensor;
      continue;
    }
    auto* input = graph.add_input();
    input->set_name(tensor.name());
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(tensor.data_type());
    for (int64_t dim : tensor.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
  }
  return part;
}

// Evaluates conditions for steps with a past, or without one.
class Conditions {
 public:
  static absl::StatusOr<Conditions> Create(const ModelProto& model, const Manifest& relation,
                                           const SourceCase& steps) {
    const bool with_past = steps.past == SourceCase::Past::kSome;
    Conditions c;
    KV_ASSIGN_OR_RETURN(Graph graph,
                        Graph::Build(std::make_shared<const ModelProto>(InFrontOfBranches(model))));
    c.graph_ = std::make_shared<const Graph>(std::move(graph));
    c.forms_ = std::make_shared<sym::Forms>(*c.graph_);
    for (const DroppedInput& dropped : relation.dropped) {
      if (IsGiven(dropped, DroppedValue::kWithPast)) c.inputs_[dropped.name] = with_past;
      if (IsGiven(dropped, DroppedValue::kWithoutPast)) c.inputs_[dropped.name] = !with_past;
    }
    for (const std::string& flag : KeptFlags(model, relation)) c.inputs_[flag] = steps.flag;
    const Expr past = with_past ? c.forms_->pool().Internal("P", 1) : c.forms_->pool().Integer(0);
    for (const ManifestCache& cache : relation.caches) {
      const ValueId value = c.graph_->Find(cache.source.input);
      if (!cache.source.growing || value == kNoValue) continue;
      const sym::Form form = c.forms_->Of(value);
      const auto axis = static_cast<size_t>(cache.source.axis);
      if (!form.known_rank || axis >= form.shape.size()) continue;
      if (form.shape[axis]->kind() == sym::Kind::kDim) c.dims_[form.shape[axis]->dim()] = past;
    }
    return c;
  }

  // Returns the condition's value, the same in all of these steps; nullopt if it may differ.
  std::optional<bool> Of(const std::string& name) { return Of(name, dims_); }
  // Returns the condition's value if that does not depend on the past.
  std::optional<bool> OfAllSteps(const std::string& name) { return Of(name, {}); }

 private:
  using Sizes = absl::flat_hash_map<sym::DimSymbol, Expr>;

  std::optional<bool> Of(const std::string& name, const Sizes& sizes) {
    const ValueId value = graph_->Find(name);
    if (value == kNoValue) return std::nullopt;
    const sym::Form form = forms_->Of(value);
    if (!form.known_rank) return std::nullopt;
    sym::Pool& pool = forms_->pool();
    sym::Pool::Substitution s;
    s.dims = sizes;
    for (Expr load : sym::OuterLoadsOf(form.element)) {
      const auto it = inputs_.find(graph_->name(load->source()));
      if (it == inputs_.end()) return std::nullopt;
      s.atoms[load] = pool.Integer(it->second ? 1 : 0);
    }
    const Expr e = pool.Substitute(form.element, s, Facts{});
    if (e->kind() == sym::Kind::kInteger) return e->value() != 0;
    if (!e->is_predicate()) return std::nullopt;
    const sym::Truth truth = pool.Prove(e, Facts{});
    if (truth == sym::Truth::kUnknown) return std::nullopt;
    return truth == sym::Truth::kYes;
  }

  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<sym::Forms> forms_;
  absl::flat_hash_map<std::string, bool> inputs_;
  Sizes dims_;
};

// Adds the branch to the graph, with the names that the node gives to its results.
absl::Status TakeBranch(const NodeProto& node, bool taken, BranchInliner* inliner,
                        GraphProto* graph) {
  KV_ASSIGN_OR_RETURN(const std::vector<std::string> given,
                      inliner->Inline(node, taken, BranchInliner::Outputs::kMayKeepNames, graph));
  for (int k = 0; k < node.output_size(); ++k) {
    if (node.output(k).empty() || node.output(k) == given[k]) continue;
    NodeProto* same = graph->add_node();
    same->set_op_type("Identity");
    same->add_input(given[k]);
    same->add_output(node.output(k));
  }
  return absl::OkStatus();
}

// Returns true if both branches give nothing but constants of their own.
bool GivesConstants(const NodeProto& node) {
  for (const char* branch : {"then_branch", "else_branch"}) {
    const onnx::AttributeProto* body = FindAttribute(node, branch);
    if (body == nullptr) return false;
    const auto& nodes = body->g().node();
    if (std::any_of(nodes.begin(), nodes.end(),
                    [](const NodeProto& inner) { return inner.op_type() != "Constant"; })) {
      return false;
    }
  }
  return true;
}

// Returns true if nothing but GroupQueryAttention reads what the node gives, or what Identity nodes
// give of it.
bool IsReadByAttentionOnly(const GraphProto& graph, const NodeProto& node) {
  absl::flat_hash_set<std::string> given(node.output().begin(), node.output().end());
  for (const NodeProto& reader : graph.node()) {
    const bool reads = std::any_of(reader.input().begin(), reader.input().end(),
                                   [&](const std::string& i) { return given.contains(i); });
    if (!reads || reader.op_type() == "GroupQueryAttention") continue;
    if (reader.op_type() != "Identity") return false;
    given.insert(reader.output(0));
  }
  return std::none_of(graph.output().begin(), graph.output().end(),
                      [&](const auto& output) { return given.contains(output.name()); });
}

}  // namespace

bool HasBranches(const ModelProto& model) {
  return std::any_of(model.graph().node().begin(), model.graph().node().end(), IsIf);
}

std::vector<std::string> KeptFlags(const ModelProto& model, const Manifest& relation) {
  std::vector<std::string> flags;
  for (const auto& input : model.graph().input()) {
    const bool truth = input.type().tensor_type().elem_type() == onnx::TensorProto::BOOL;
    const bool kept =
        std::any_of(relation.inputs.begin(), relation.inputs.end(), [&](const ManifestInput& i) {
          return AsOf(i) == InputAs::kSame && i.name == input.name();
        });
    const bool one =
        std::all_of(input.type().tensor_type().shape().dim().begin(),
                    input.type().tensor_type().shape().dim().end(),
                    [](const auto& dim) { return dim.has_dim_value() && dim.dim_value() == 1; });
    if (truth && kept && one && input.type().tensor_type().has_shape()) {
      flags.push_back(input.name());
    }
  }
  return flags;
}

absl::StatusOr<ModelProto> TakeBranches(const ModelProto& model, const Manifest& relation,
                                        const SourceCase& steps) {
  KV_ASSIGN_OR_RETURN(Conditions conditions, Conditions::Create(model, relation, steps));
  BranchInliner inliner(model.graph());
  ModelProto result = model;
  GraphProto* graph = result.mutable_graph();
  graph->clear_node();
  for (const NodeProto& node : model.graph().node()) {
    if (!IsIf(node)) {
      *graph->add_node() = node;
      continue;
    }
    const std::optional<bool> taken = conditions.Of(node.input(0));
    // Attention is proved with the choice of its tables, which the converted model makes in all
    // steps.
    const bool chooses = GivesConstants(node) && !conditions.OfAllSteps(node.input(0)) &&
                         (!taken || IsReadByAttentionOnly(model.graph(), node));
    if (chooses) {
      *graph->add_node() = node;
      continue;
    }
    if (!taken) {
      return absl::UnimplementedError(
          fmt::format("which branch {} takes is not seen", node.output(0)));
    }
    KV_RETURN_IF_ERROR(TakeBranch(node, *taken, &inliner, graph));
  }
  // A branch may read what it computes only later, which no pass behind this one looks for.
  KV_RETURN_IF_ERROR(Graph::Build(std::make_shared<const ModelProto>(result)).status());
  return result;
}

}  // namespace kvlift
