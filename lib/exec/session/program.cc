#include "exec/session/program.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/status.h"
#include "exec/compile/alias_modes.h"
#include "exec/compile/fusing.h"
#include "exec/compile/packing.h"
#include "exec/compile/pitched_caches.h"
#include "exec/compile/plan.h"
#include "exec/compile/sequences.h"
#include "exec/kernels/common/kernel.h"
#include "exec/kernels/elementwise/rows.h"
#include "exec/memory/budget.h"
#include "exec/session/program_impl.h"
#include "fmt/format.h"
#include "onnx/defs/schema.h"
#include "onnxio/model/functions.h"

namespace kvlift::exec {
namespace {

using Protos = std::vector<const onnx::TensorProto*>;

// Returns one entry per value; nullptr where the value is computed or fed.
Protos ConstantProtos(const Graph& graph) {
  Protos protos(graph.num_values(), nullptr);
  std::vector<bool> fed(graph.num_values(), false);
  for (const ValueId v : graph.graph_inputs()) fed[v] = true;
  for (ValueId v = 0; v < graph.num_values(); ++v) protos[v] = graph.constant(v);
  // Initializers that are also listed as graph inputs (as IR version 3 requires) are constants.
  for (const onnx::TensorProto& tensor : graph.proto().initializer()) {
    const ValueId v = graph.Find(tensor.name());
    if (v != kNoValue && protos[v] == nullptr && !fed[v]) protos[v] = &tensor;
  }
  return protos;
}

// Returns the newest version of the operator set that is known; the meaning of later ones is
// unknown.
int64_t NewestOpset(std::string_view domain) {
  if (domain == "ai.onnx") domain = "";
  const auto& ranges = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  const auto range = ranges.find(std::string(domain));
  const bool known = range != ranges.end() && domain.empty();
  return known ? range->second.second : std::numeric_limits<int64_t>::max();
}

// Returns InvalidArgument unless the node has the operands that its schema requires.
absl::Status CheckOperands(const onnx::NodeProto& node, int64_t version, bool has_kernel) {
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  const onnx::OpSchema* schema =
      onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(version), domain);
  if (schema == nullptr) {
    if (!has_kernel) return absl::OkStatus();
    if (node.output_size() > 0 && !node.output(0).empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("{} needs its output 0", node.op_type()));
  }
  const auto bad = [&](int count, const char* what, int low, int high) {
    return absl::InvalidArgumentError(fmt::format("{} {} of {}-{}, which has {} to {}", count, what,
                                                  node.op_type(), version, low, high));
  };
  if (node.input_size() < schema->min_input() || node.input_size() > schema->max_input()) {
    return bad(node.input_size(), "inputs", schema->min_input(), schema->max_input());
  }
  if (node.output_size() < schema->min_output() || node.output_size() > schema->max_output()) {
    return bad(node.output_size(), "outputs", schema->min_output(), schema->max_output());
  }
  const auto& formal = schema->inputs();
  for (int i = 0; i < node.input_size() && i < static_cast<int>(formal.size()); ++i) {
    if (node.input(i).empty() && formal[i].GetOption() == onnx::OpSchema::Single) {
      return absl::InvalidArgumentError(
          fmt::format("{}-{} needs its input {}", node.op_type(), version, i));
    }
  }
  const auto& results = schema->outputs();
  for (int i = 0; i < node.output_size() && i < static_cast<int>(results.size()); ++i) {
    if (node.output(i).empty() && results[i].GetOption() == onnx::OpSchema::Single) {
      return absl::InvalidArgumentError(
          fmt::format("{}-{} needs its output {}", node.op_type(), version, i));
    }
  }
  return absl::OkStatus();
}

std::string NodeLabel(const Graph& graph, NodeId n) {
  return fmt::format("node \"{}\"", graph.NodeName(n));
}

// Refuses models that use the operators of fused graphs themselves.
absl::Status RefuseInternal(const Graph& graph) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (graph.node(n).domain() != kFusedDomain) continue;
    return absl::UnimplementedError(fmt::format("operator {}.{} at {} has no kernel", kFusedDomain,
                                                graph.node(n).op_type(), NodeLabel(graph, n)));
  }
  return absl::OkStatus();
}

class Compiler {
 public:
  // `source` has the data of the graph's constants, by name.
  Compiler(std::shared_ptr<const Graph> graph, std::shared_ptr<const Graph> source,
           const CompileOptions& options, Program::Impl& impl)
      : graph_(*graph), impl_(impl) {
    impl_.graph = std::move(graph);
    impl_.source = std::move(source);
    impl_.options = options;
    impl_.threads = options.threads > 0
                        ? options.threads
                        : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    body_options_.order = options.order;
    body_options_.threads = options.threads;
    body_options_.base_dir = options.base_dir;
    body_options_.pack_weights = options.pack_weights;
    body_options_.bodies = options.bodies;
  }

  absl::Status Run() {
    FindConstants();
    impl_.packed.resize(graph_.num_nodes());
    if (impl_.options.pack_weights) packer_.emplace(graph_, protos_);
    KV_RETURN_IF_ERROR(FindKernels());
    KV_ASSIGN_OR_RETURN(std::vector<PairPlan> pairs, ResolvePairs(graph_, impl_.options.caches));
    const std::vector<NodeId> order = Schedule(graph_, defs_, impl_.options.alias, pairs);
    for (const PairPlan& pair : pairs) {
      const AliasDecision& decision = pair.decision;
      if (impl_.options.alias == AliasMode::kRequired && !decision.aliased) {
        return absl::FailedPreconditionError(
            fmt::format("cache \"{}\" -> \"{}\" cannot share one buffer: {}", decision.pair.input,
                        decision.pair.output, decision.reason));
      }
    }
    const std::vector<Timing> timing = TimeNodes(graph_, defs_, protos_, order);
    if (impl_.options.alias == AliasMode::kGuard) {
      for (PairPlan& pair : pairs) {
        const bool first = pair.written.empty();
        pair.guard = first ? pair.writer : graph_.producer(pair.written.front());
        pair.writer = pair.grower = kNoNode;
        pair.written.clear();
      }
    }
    impl_.plan = MakePlan(graph_, defs_, protos_, timing, order, std::move(pairs));
    impl_.plan.apart.assign(graph_.num_values(), false);
    if (!impl_.options.fetch_caches) FindPitchedCaches(graph_, defs_, &impl_.plan);
    for (const PairPlan& pair : impl_.plan.pairs) impl_.aliasing.push_back(pair.decision);
    if (impl_.options.alias == AliasMode::kPoison) MarkPoison();
    impl_.wiring = Wire(graph_, impl_.plan);
    KV_RETURN_IF_ERROR(LoadConstants());
    if (packer_.has_value()) PackConstants();
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const onnx::NodeProto& node = graph_.node(n);
      const bool rows = node.domain() == kFusedDomain && node.op_type() != kProduct;
      if (rows) impl_.packed[n] = ReadRowProgram(node);
    }
    return absl::OkStatus();
  }

 private:
  void FindConstants() {
    protos_ = ConstantProtos(graph_);
    if (impl_.source == impl_.graph) return;
    const Protos given = ConstantProtos(*impl_.source);
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      if (protos_[v] != nullptr) protos_[v] = given[impl_.source->Find(graph_.name(v))];
    }
  }

  void MarkPoison() {
    for (StepPlan& step : impl_.plan.steps) {
      if (step.writes_pair < 0) continue;
      step.poisons = HasUnreadRows(graph_, defs_, impl_.plan.pairs[step.writes_pair]);
    }
  }

  bool IsConstantNode(NodeId n) const {
    for (const ValueId v : graph_.outputs(n)) {
      if (v == kNoValue || protos_[v] == nullptr) return false;
    }
    return !graph_.outputs(n).empty();
  }

  // Refuses values without data: an omitted operand has no name, so that one with a name is given.
  absl::Status CheckValues(NodeId n) const {
    for (const auto& operands : {graph_.inputs(n), graph_.captures(n)}) {
      for (const ValueId v : operands) {
        const bool given = v == kNoValue || protos_[v] != nullptr || graph_.is_graph_input(v) ||
                           graph_.producer(v) != kNoNode;
        if (given) continue;
        return absl::UnimplementedError(
            fmt::format("{} reads {}, a sparse initializer", NodeLabel(graph_, n), graph_.name(v)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FindKernels() {
    defs_.assign(graph_.num_nodes(), nullptr);
    impl_.calls.resize(graph_.num_nodes());
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (IsConstantNode(n)) continue;
      KV_RETURN_IF_ERROR(CheckValues(n));
      const onnx::NodeProto& node = graph_.node(n);
      const int64_t version = OpsetOf(graph_.model(), node.domain());
      if (const int64_t newest = NewestOpset(node.domain()); version > newest) {
        return absl::UnimplementedError(
            fmt::format("operator {}-{} at {} has no kernel: the newest operator set known is {}",
                        node.op_type(), version, NodeLabel(graph_, n), newest));
      }
      if (FindFunction(graph_.model(), node) != nullptr) {
        KV_RETURN_IF_ERROR(MakeCall(n, version));
        continue;
      }
      const OpDef* def = DefOf(graph_, n);
      const absl::Status operands = CheckOperands(node, version, def != nullptr);
      if (!operands.ok()) {
        return absl::InvalidArgumentError(
            fmt::format("{}: {}", NodeLabel(graph_, n), std::string(operands.message())));
      }
      const bool has_kernel =
          def != nullptr && def->shape != nullptr && FindSequenceOp(graph_, n) == nullptr;
      if (has_kernel && impl_.options.bodies) {
        const absl::Status status = MakeCall(n, version);
        if (!absl::IsUnimplemented(status)) {
          KV_RETURN_IF_ERROR(status);
          continue;
        }
      }
      if (has_kernel) {
        defs_[n] = def;
      } else {
        KV_RETURN_IF_ERROR(MakeCall(n, version));
      }
    }
    return absl::OkStatus();
  }

  absl::Status MakeCall(NodeId n, int64_t version) {
    const onnx::NodeProto& node = graph_.node(n);
    auto call = std::make_unique<CallPlan>();
    const absl::Span<const ValueId> captures = graph_.captures(n);
    call->captures.assign(captures.begin(), captures.end());
    std::vector<std::string_view> bodies;
    const bool local = FindFunction(graph_.model(), node) != nullptr;
    call->object = local ? nullptr : FindSequenceOp(graph_, n);
    if (call->object != nullptr) {
      call->kind = CallKind::kSequenceOp;
    } else if (!local && graph_.Is(n, "If")) {
      call->kind = CallKind::kIf;
      bodies = {"then_branch", "else_branch"};
    } else if (!local && (graph_.Is(n, "Loop") || graph_.Is(n, "Scan"))) {
      call->kind = graph_.Is(n, "Loop") ? CallKind::kLoop : CallKind::kScan;
      bodies = {"body"};
    }
    for (const std::string_view name : bodies) {
      const onnx::AttributeProto* body = FindAttribute(node, name);
      if (body == nullptr || !body->has_g()) {
        return absl::InvalidArgumentError(
            fmt::format("{}: {} without {}", NodeLabel(graph_, n), node.op_type(), name));
      }
      KV_ASSIGN_OR_RETURN(std::shared_ptr<const Program> program,
                          CompileBody(graph_, body->g(), call->captures, body_options_));
      call->bodies.push_back(std::move(program));
    }
    if (call->kind == CallKind::kFunction) {
      KV_RETURN_IF_ERROR(MakeFunctionCall(n, version, *call));
    }
    impl_.calls[n] = std::move(call);
    return absl::OkStatus();
  }

  absl::Status MakeFunctionCall(NodeId n, int64_t version, CallPlan& call) {
    const onnx::NodeProto& node = graph_.node(n);
    std::vector<int32_t> types;
    for (const ValueId v : graph_.inputs(n)) {
      types.push_back(v == kNoValue           ? 0
                      : protos_[v] != nullptr ? protos_[v]->data_type()
                                              : graph_.type(v).elem_type);
    }
    auto program = CompileFunction(graph_.model(), node, types, body_options_);
    if (program.ok()) {
      call.bodies.push_back(*std::move(program));
    } else if (absl::IsNotFound(program.status())) {
      return absl::UnimplementedError(fmt::format("operator {}{}{}-{} at {} has no kernel",
                                                  node.domain(), node.domain().empty() ? "" : ".",
                                                  node.op_type(), version, NodeLabel(graph_, n)));
    } else if (!absl::IsFailedPrecondition(program.status())) {
      return program.status();  // else the body is compiled when the types are known
    }
    return absl::OkStatus();
  }

  absl::Status LoadConstants() {
    absl::flat_hash_map<const onnx::TensorProto*, int> loaded;
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      if (protos_[v] == nullptr || (graph_.uses(v).empty() && !graph_.is_graph_output(v))) continue;
      const auto [it, inserted] =
          loaded.emplace(protos_[v], static_cast<int>(impl_.constants.size()));
      if (inserted) {
        KV_ASSIGN_OR_RETURN(Tensor tensor, LoadConstant(v));
        impl_.constants.push_back(std::move(tensor));
      }
      impl_.plan.values[v].index = it->second;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> LoadConstant(ValueId v) {
    const onnx::TensorProto& proto = *protos_[v];
    if (packer_.has_value() && packer_->SourceOf(v) != kNoValue) {
      const Shape shape(proto.dims().begin(), proto.dims().end());
      return Tensor::Wrap({proto.data_type(), shape, nullptr}, nullptr);
    }
    return Tensor::FromProto(proto, impl_.options.base_dir,
                             std::const_pointer_cast<Graph>(impl_.source));
  }

  // Releases a constant and its inline data in the model. The caller has agreed to this
  // (release_packed_weights).
  void GiveUp(ValueId v, Tensor& tensor) {
    tensor = Tensor::Wrap({tensor.type(), tensor.shape(), nullptr}, nullptr);
    auto& proto = const_cast<onnx::TensorProto&>(*protos_[v]);
    if (proto.has_raw_data()) delete proto.release_raw_data();
    google::protobuf::RepeatedField<float>().Swap(proto.mutable_float_data());
    google::protobuf::RepeatedField<double>().Swap(proto.mutable_double_data());
    google::protobuf::RepeatedField<int32_t>().Swap(proto.mutable_int32_data());
  }

  void PackConstants() {
    const auto constant = [&](ValueId v) -> Tensor* {
      const int index = protos_[v] == nullptr ? -1 : impl_.plan.values[v].index;
      return index < 0 ? nullptr : &impl_.constants[index];
    };
    std::vector<const Tensor*> sources(graph_.num_values(), nullptr);
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      const ValueId source = packer_->SourceOf(v);
      sources[v] = constant(source == kNoValue ? v : source);
    }
    impl_.packed = packer_->Pack(defs_, sources, impl_.options.order == Order::kCanonical,
                                 impl_.threads, [&](ValueId v) {
                                   if (impl_.options.release_packed_weights)
                                     GiveUp(v, *constant(v));
                                 });
    // Nodes that could not pack the constant read its transpose.
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      if (packer_->SourceOf(v) == kNoValue) continue;
      const auto uses = graph_.uses(v);
      if (std::any_of(uses.begin(), uses.end(),
                      [&](const Use& use) { return impl_.packed[use.node] == nullptr; })) {
        *constant(v) = TransposedMatrix(*sources[v]);
      }
    }
  }

  const Graph& graph_;
  Program::Impl& impl_;
  CompileOptions body_options_;
  Protos protos_;
  std::vector<const OpDef*> defs_;
  std::optional<WeightPacker> packer_;
};

}  // namespace

Program::Program() : impl_(std::make_unique<Impl>()) {}
Program::~Program() = default;

absl::StatusOr<std::shared_ptr<const Program>> Program::Compile(std::shared_ptr<const Graph> graph,
                                                                const CompileOptions& options) {
  KV_ASSIGN_OR_RETURN(graph, LowerSequences(std::move(graph)));
  KV_RETURN_IF_ERROR(RefuseInternal(*graph));
  const std::shared_ptr<const Graph> source = graph;
  if (options.fuse && !options.bodies) {
    KV_ASSIGN_OR_RETURN(graph, FuseRows(std::move(graph), options.order == Order::kFast));
  }
  std::shared_ptr<Program> program(new Program());
  Compiler compiler(std::move(graph), source, options, *program->impl_);
  KV_RETURN_IF_ERROR(WithinMemory([&] { return compiler.Run(); }));
  return std::shared_ptr<const Program>(std::move(program));
}

const Graph& Program::graph() const { return *impl_->graph; }
absl::Span<const AliasDecision> Program::aliasing() const { return impl_->aliasing; }
const CompileOptions& Program::options() const { return impl_->options; }

}  // namespace kvlift::exec
