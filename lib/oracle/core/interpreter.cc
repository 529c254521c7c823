#include "oracle/core/interpreter.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "ir/types.h"
#include "onnxio/model/function_body.h"
#include "onnxio/model/functions.h"
#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

using onnx::AttributeProto;
using onnx::FunctionProto;
using onnx::GraphProto;
using onnx::NodeProto;

// The cost of a node, and of each of its elements.
constexpr int64_t kNodeWork = 1000, kElementWork = 8;
constexpr int kMaxDepth = 40;
constexpr int64_t kMaxIterations = 100000;
// The cost of a weight per row, and of a weight that must be unpacked.
constexpr int64_t kProductWork = 4, kPackedWork = 40;
constexpr size_t kSmallBytes = size_t{32} << 20;

using Opsets = absl::flat_hash_map<std::string, int64_t>;

template <typename Imports>
void AddOpsets(const Imports& imports, Opsets* opsets) {
  for (const auto& import : imports) {
    opsets->try_emplace(import.domain() == "ai.onnx" ? "" : import.domain(), import.version());
  }
}

std::string DomainOf(const NodeProto& node) {
  return node.domain() == "ai.onnx" ? "" : node.domain();
}

std::string OperatorName(const NodeProto& node) {
  return DomainOf(node).empty() ? node.op_type() : node.domain() + "." + node.op_type();
}

// In opset 8, Scan has a batch axis and sequence lengths.
constexpr int64_t kFirstScan = 9;

bool IsControl(const NodeProto& node, int64_t opset) {
  const std::string& op = node.op_type();
  return DomainOf(node).empty() &&
         (op == "If" || op == "Loop" || (op == "Scan" && opset >= kFirstScan));
}

// Collects all names that a node reads, including those in its bodies.
void CollectReads(const NodeProto& node, std::set<std::string>* names) {
  names->insert(node.input().begin(), node.input().end());
  for (const AttributeProto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    for (const NodeProto& inner : attribute.g().node()) CollectReads(inner, names);
    for (const auto& output : attribute.g().output()) names->insert(output.name());
  }
}

// Replaces references to a function's attributes by their values, also in bodies.
void Bind(NodeProto* node, const std::map<std::string, AttributeProto>& values) {
  std::vector<AttributeProto> bound;
  for (AttributeProto attribute : node->attribute()) {
    if (!attribute.ref_attr_name().empty()) {
      const auto it = values.find(attribute.ref_attr_name());
      if (it == values.end()) continue;
      const std::string name = attribute.name();
      attribute = it->second;
      attribute.set_name(name);
    } else if (attribute.has_g()) {
      for (NodeProto& inner : *attribute.mutable_g()->mutable_node()) Bind(&inner, values);
    }
    bound.push_back(std::move(attribute));
  }
  node->clear_attribute();
  for (AttributeProto& attribute : bound) *node->add_attribute() = std::move(attribute);
}

}  // namespace

// A level of name lookup.
struct Interpreter::Scope {
  const Scope* outer = nullptr;
  Values values;
  bool main = false;  // names not found here are initializers of the model
};

// Settings for all nodes of a graph or function.
struct Interpreter::Setting {
  Opsets opsets;
  int depth = 0;
  int64_t budget = 0;
  int64_t* work = nullptr;
  bool* foreseen = nullptr;  // whether the work of all products was compared with the budget
};

absl::StatusOr<Interpreter> Interpreter::Create(std::shared_ptr<const onnx::ModelProto> model,
                                                std::string base_dir) {
  Interpreter result;
  KV_ASSIGN_OR_RETURN(Graph graph, Graph::Build(std::move(model)));
  result.graph_ = std::make_shared<const Graph>(std::move(graph));
  result.base_dir_ = std::move(base_dir);
  const Graph& g = *result.graph_;
  for (const auto& tensor : g.proto().initializer()) {
    result.initializers_[tensor.name()] = &tensor;
  }
  result.FindUnknown(g.proto());
  result.FindProducts();
  std::sort(result.unknown_.begin(), result.unknown_.end());
  std::set<std::string> later;
  for (const auto& output : g.proto().output()) later.insert(output.name());
  result.last_read_.resize(static_cast<size_t>(g.num_nodes()));
  for (int n = g.num_nodes() - 1; n >= 0; --n) {
    std::set<std::string> reads;
    CollectReads(g.node(n), &reads);
    reads.insert(g.node(n).output().begin(), g.node(n).output().end());
    for (const std::string& name : reads) {
      if (later.insert(name).second) result.last_read_[n].push_back(name);
    }
  }
  return result;
}

void Interpreter::FindUnknown(const GraphProto& graph) {
  Opsets opsets;
  AddOpsets(graph_->model().opset_import(), &opsets);
  for (const NodeProto& node : graph.node()) {
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) FindUnknown(attribute.g());
    }
    if (IsControl(node, opsets[DomainOf(node)]) ||
        FindMeaning(node.domain(), node.op_type()) != nullptr ||
        FindFunction(graph_->model(), node) != nullptr) {
      continue;
    }
    const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(
        node.op_type(), static_cast<int>(opsets[DomainOf(node)]), DomainOf(node));
    if (schema != nullptr && (schema->HasFunction() || schema->HasContextDependentFunction())) {
      continue;
    }
    const std::string name = OperatorName(node);
    if (std::find(unknown_.begin(), unknown_.end(), name) == unknown_.end()) {
      unknown_.push_back(name);
    }
  }
}

void Interpreter::FindProducts() {
  const Graph& g = *graph_;
  for (NodeId n = 0; n < g.num_nodes(); ++n) {
    const auto outputs = g.outputs(n);
    const bool is_last = std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) {
      if (v == kNoValue) return true;
      const auto uses = g.uses(v);
      return std::all_of(uses.begin(), uses.end(),
                         [](const Use& use) { return use.kind == Use::Kind::kGraphOutput; });
    });
    if (is_last) last_.insert(&g.node(n));
    const std::string& op = g.node(n).op_type();
    const bool packed = op == "MatMulNBits" || op == "MatMulBnb4";
    if (!packed && !g.Is(n, "MatMul") && !g.Is(n, "Gemm")) continue;
    if (FindFunction(g.model(), g.node(n)) != nullptr) continue;
    const auto weights = initializers_.find(g.node(n).input(1));
    if (weights == initializers_.end() || last_.contains(&g.node(n))) continue;
    products_.insert(&g.node(n));
    const int64_t size =
        packed ? IntAttribute(g.node(n), "K", 0) * IntAttribute(g.node(n), "N", 0)
               : Product({weights->second->dims().begin(), weights->second->dims().end()});
    work_per_row_ += (packed ? kPackedWork : kProductWork) * size;
  }
}

absl::StatusOr<Value> Interpreter::Initializer(const std::string& name) const {
  if (const auto it = kept_.find(name); it != kept_.end()) return it->second;
  const auto it = initializers_.find(name);
  if (it == initializers_.end()) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" has no value", name));
  }
  KV_ASSIGN_OR_RETURN(Value value,
                      Value::FromProto(*it->second, base_dir_, graph_->shared_model()));
  const bool external = IsElsewhere(*it->second);
  if (!external || value.stored()->bytes.size() < kSmallBytes) kept_[name] = value;
  return value;
}

absl::StatusOr<Value> Interpreter::Lookup(const Scope& scope, const std::string& name) const {
  for (const Scope* s = &scope; s != nullptr; s = s->outer) {
    if (const auto it = s->values.find(name); it != s->values.end()) return it->second;
    if (s->main) return Initializer(name);
  }
  return absl::InvalidArgumentError(fmt::format("\"{}\" has no value", name));
}

absl::StatusOr<Values> Interpreter::Run(const Values& inputs, int64_t budget, int64_t* work) const {
  Setting setting;
  AddOpsets(graph_->model().opset_import(), &setting.opsets);
  setting.budget = budget;
  int64_t done = 0;
  setting.work = &done;
  bool foreseen = false;
  setting.foreseen = &foreseen;
  Scope scope;
  scope.main = true;
  scope.values = inputs;
  absl::Status status;
  for (NodeId n = 0; n < graph_->num_nodes() && status.ok(); ++n) {
    status = RunNode(graph_->node(n), setting, scope);
    for (const std::string& name : last_read_[n]) scope.values.erase(name);
  }
  *work += done;
  KV_RETURN_IF_ERROR(status);
  Values outputs;
  for (const auto& output : graph_->proto().output()) {
    KV_ASSIGN_OR_RETURN(outputs[output.name()], Lookup(scope, output.name()));
  }
  return outputs;
}

absl::Status Interpreter::RunNode(const NodeProto& node, const Setting& setting,
                                  Scope& scope) const {
  std::vector<Value> in;
  for (const std::string& name : node.input()) {
    in.emplace_back();
    if (name.empty()) continue;
    KV_ASSIGN_OR_RETURN(in.back(), Lookup(scope, name));
  }
  auto out = Call(node, setting, in, scope);
  if (!out.ok()) {
    const std::string name = node.name().empty() ? node.output(0) : node.name();
    return {out.status().code(),
            fmt::format("{} (node {})", std::string(out.status().message()), name)};
  }
  for (int k = 0; k < node.output_size(); ++k) {
    if (node.output(k).empty()) continue;
    if (static_cast<size_t>(k) >= out->size()) {
      return absl::UnimplementedError(fmt::format("output {} of {}", k, OperatorName(node)));
    }
    scope.values[node.output(k)] = std::move((*out)[k]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Value>> Interpreter::Call(const NodeProto& node, const Setting& setting,
                                                     const std::vector<Value>& in,
                                                     const Scope& scope) const {
  *setting.work += kNodeWork;
  if (*setting.work > setting.budget) {
    return absl::ResourceExhaustedError("more work than the oracle may do");
  }
  if (const FunctionProto* local = FindFunction(graph_->model(), node); local != nullptr) {
    return RunFunction(*local, node, nullptr, setting, in);
  }
  const auto opset = setting.opsets.find(DomainOf(node));
  const int64_t version = opset == setting.opsets.end() ? 1 : opset->second;
  if (IsControl(node, version)) {
    if (node.op_type() == "If") return RunIf(node, setting, in, scope);
    return node.op_type() == "Loop" ? RunLoop(node, setting, in, scope)
                                    : RunScan(node, setting, in, scope);
  }
  if (const OpFn meaning = FindMeaning(node.domain(), node.op_type()); meaning != nullptr) {
    std::vector<Value> out(static_cast<size_t>(node.output_size()));
    OpContext context{node, version, in, &out, setting.budget - *setting.work};
    context.is_last = last_.contains(&node);
    if (products_.contains(&node) && !*setting.foreseen) {
      // Compares the work of all products with the budget, before the first one is computed in
      // vain.
      *setting.foreseen = true;
      const int64_t row = in[0].dims().empty() ? 1 : std::max<int64_t>(1, in[0].dims().back());
      if (in[0].size() / row > context.budget / std::max<int64_t>(1, work_per_row_)) {
        return absl::ResourceExhaustedError("more work than the oracle may do");
      }
    }
    KV_RETURN_IF_ERROR(meaning(context));
    *setting.work += context.work;
    const bool sizes_only = node.op_type() == "Shape" || node.op_type() == "Size";
    for (Value& value : out) {
      *setting.work += value.absent() ? 0 : kElementWork * value.size();
      for (const Value& operand : in) {
        value.doubtful = value.doubtful || (operand.doubtful && !sizes_only);
      }
    }
    return out;
  }
  const onnx::OpSchema* schema =
      onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(version), DomainOf(node));
  if (schema != nullptr) {
    std::vector<int32_t> types;
    types.reserve(in.size());
    for (const Value& value : in) types.push_back(value.type());
    KV_ASSIGN_OR_RETURN(const auto body,
                        FunctionBody(*schema, node, static_cast<int>(version), types));
    if (body.has_value()) return RunFunction(*body, node, schema, setting, in);
  }
  return absl::UnimplementedError(fmt::format("{} has no meaning here", OperatorName(node)));
}

absl::StatusOr<std::vector<Value>> Interpreter::RunFunction(const FunctionProto& function,
                                                            const NodeProto& node,
                                                            const onnx::OpSchema* schema,
                                                            const Setting& setting,
                                                            const std::vector<Value>& in) const {
  if (setting.depth > kMaxDepth) return absl::InvalidArgumentError("functions nested too deep");
  std::map<std::string, AttributeProto> attributes;
  if (schema != nullptr) {
    for (const auto& [name, attribute] : schema->attributes()) {
      if (attribute.default_value.type() != AttributeProto::UNDEFINED) {
        attributes[name] = attribute.default_value;
      }
    }
  }
  for (const AttributeProto& value : function.attribute_proto()) attributes[value.name()] = value;
  for (const AttributeProto& value : node.attribute()) attributes[value.name()] = value;
  Setting inner = setting;
  inner.depth = setting.depth + 1;
  inner.opsets.clear();
  AddOpsets(function.opset_import(), &inner.opsets);
  for (const auto& [domain, version] : setting.opsets) inner.opsets.try_emplace(domain, version);
  Scope scope;
  for (int k = 0; k < function.input_size(); ++k) {
    const auto i = static_cast<size_t>(k);
    scope.values[function.input(k)] = i < in.size() ? in[i] : Value();
  }
  for (NodeProto copy : function.node()) {
    Bind(&copy, attributes);
    KV_RETURN_IF_ERROR(RunNode(copy, inner, scope));
  }
  std::vector<Value> out;
  for (int k = 0; k < function.output_size() && k < node.output_size(); ++k) {
    out.emplace_back();
    if (node.output(k).empty()) continue;
    KV_ASSIGN_OR_RETURN(out.back(), Lookup(scope, function.output(k)));
  }
  return out;
}

absl::StatusOr<std::vector<Value>> Interpreter::RunBody(const GraphProto& body,
                                                        const Setting& setting, const Scope& outer,
                                                        const std::vector<Value>& in) const {
  if (setting.depth > kMaxDepth) return absl::InvalidArgumentError("bodies nested too deep");
  Setting inner = setting;
  inner.depth = setting.depth + 1;
  Scope scope;
  scope.outer = &outer;
  for (const auto& tensor : body.initializer()) {
    KV_ASSIGN_OR_RETURN(scope.values[tensor.name()],
                        Value::FromProto(tensor, base_dir_, graph_->shared_model()));
  }
  for (int k = 0; k < body.input_size() && static_cast<size_t>(k) < in.size(); ++k) {
    scope.values[body.input(k).name()] = in[k];
  }
  for (const NodeProto& node : body.node()) KV_RETURN_IF_ERROR(RunNode(node, inner, scope));
  std::vector<Value> out;
  for (const auto& output : body.output()) {
    out.emplace_back();
    KV_ASSIGN_OR_RETURN(out.back(), Lookup(scope, output.name()));
  }
  return out;
}

absl::StatusOr<std::vector<Value>> Interpreter::RunIf(const NodeProto& node, const Setting& setting,
                                                      const std::vector<Value>& in,
                                                      const Scope& scope) const {
  const bool yes = ScalarOf(in[0]) != 0;
  const AttributeProto* branch = FindAttribute(node, yes ? "then_branch" : "else_branch");
  if (branch == nullptr) return absl::InvalidArgumentError("If without a branch");
  KV_ASSIGN_OR_RETURN(std::vector<Value> out, RunBody(branch->g(), setting, scope, {}));
  for (Value& value : out) value.doubtful = value.doubtful || in[0].doubtful;
  return out;
}

absl::StatusOr<std::vector<Value>> Interpreter::RunLoop(const NodeProto& node,
                                                        const Setting& setting,
                                                        const std::vector<Value>& in,
                                                        const Scope& scope) const {
  const AttributeProto* attribute = FindAttribute(node, "body");
  if (attribute == nullptr) return absl::InvalidArgumentError("Loop without a body");
  const GraphProto& body = attribute->g();
  const int64_t most = in.empty() || in[0].absent() ? kMaxIterations : in[0].integers()[0];
  bool go = in.size() < 2 || in[1].absent() || in[1].integers()[0] != 0;
  std::vector<Value> state(in.begin() + std::min<int64_t>(2, static_cast<int64_t>(in.size())),
                           in.end());
  const size_t carried = state.size();
  std::vector<std::vector<Value>> scans(static_cast<size_t>(node.output_size()) - carried);
  bool doubtful = false;
  for (int64_t i = 0; i < most && go; ++i) {
    std::vector<Value> feeds = {Value::FromIntegers(onnx::TensorProto::INT64, {}, {i}),
                                Value::FromIntegers(onnx::TensorProto::BOOL, {}, {1})};
    feeds.insert(feeds.end(), state.begin(), state.end());
    KV_ASSIGN_OR_RETURN(std::vector<Value> out, RunBody(body, setting, scope, feeds));
    go = out[0].integers()[0] != 0;
    doubtful = doubtful || out[0].doubtful;
    state.assign(out.begin() + 1, out.begin() + 1 + static_cast<int64_t>(carried));
    for (size_t k = 0; k < scans.size(); ++k) scans[k].push_back(out[1 + carried + k]);
  }
  for (const std::vector<Value>& slices : scans) {
    if (slices.empty()) return absl::UnimplementedError("Loop that does not run, with slices");
    std::vector<const Value*> sources;
    std::vector<Pick> picks;
    for (size_t k = 0; k < slices.size(); ++k) {
      sources.push_back(&slices[k]);
      for (int64_t i = 0; i < slices[k].size(); ++i) picks.push_back({static_cast<int>(k), i});
    }
    Dims dims = slices[0].dims();
    dims.insert(dims.begin(), static_cast<int64_t>(slices.size()));
    state.push_back(Collect(sources, dims, picks));
  }
  for (Value& value : state) value.doubtful = value.doubtful || doubtful;
  return state;
}

}  // namespace kvlift::oracle
