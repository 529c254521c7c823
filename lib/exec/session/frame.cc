#include "exec/session/frame.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "base/coded.h"
#include "base/status.h"
#include "exec/kernels/common/pitch.h"
#include "exec/memory/budget.h"
#include "exec/session/control_flow.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

// Steps between two looks at the clock, since one look takes as long as a small operator.
constexpr int kStepsPerLook = 16;

}  // namespace

Frame::Frame(std::shared_ptr<const Program> program)
    : program_(std::move(program)), layout_(*impl().graph, impl().plan, impl().wiring) {
  const Plan& plan = impl().plan;
  views_.resize(plan.values.size());
  tensors_.resize(plan.values.size());
  slots_.resize(plan.num_slots);
  slot_map_.resize(plan.num_slots);
  outputs_.resize(impl().graph->graph_outputs().size());
  grows_.assign(plan.pairs.size(), false);
  calls_.resize(impl().calls.size());
  for (size_t v = 0; v < plan.values.size(); ++v) {
    const ValuePlan& value = plan.values[v];
    if (value.home == Home::kConstant && value.index >= 0) {
      views_[v] = impl().constants[value.index].view();
    }
  }
  Connect();
}

Frame::~Frame() = default;

absl::Status Frame::Run(absl::Span<const View> inputs, absl::Span<Buffer> next,
                        const Observer& observer, absl::Span<const CacheRoom> rooms) {
  const size_t wanted = impl().graph->graph_inputs().size();
  if (inputs.size() != wanted) {
    return absl::InternalError(fmt::format("{} inputs for {}", inputs.size(), wanted));
  }
  undo_.Clear();
  retired_.Clear();
  next_ = next;
  rooms_ = rooms;
  // The slots start in the same order in each run, so that equal steps need equal memory.
  std::iota(slot_map_.begin(), slot_map_.end(), 0);
  KV_RETURN_IF_ERROR(Prepare(inputs));
  const int steps = static_cast<int>(impl().plan.steps.size());
  const bool guarded = impl().options.alias == AliasMode::kGuard;
  for (int s = 0; s < steps; ++s) {
    absl::Status status = s % kStepsPerLook == 0 ? StepClock::Check() : absl::OkStatus();
    if (status.ok()) status = guarded ? RunGuarded(s) : RunStep(s);
    if (!status.ok()) {
      undo_.Restore();
      return status;
    }
    if (observer) Show(s, observer);
  }
  return absl::OkStatus();
}

absl::Status Frame::RunStep(int s) {
  const StepPlan& step = impl().plan.steps[s];
  if (step.timing == Timing::kLate) {
    CollectInputs(step.node);
    const absl::Status status = step.def != nullptr ? RunLate(step) : RunCall(step);
    return status.ok() ? status : InStep(step, status);
  }
  if (step.timing == Timing::kEarly || is_view_[s]) return absl::OkStatus();
  KernelContext& context = contexts_[s];
  if (step.writes_pair >= 0) undo_.Save(context.node, context.inputs);
  if (step.poisons) PoisonRows(context.node, context.inputs);
  const absl::Status status = step.def->compute(context);
  return status.ok() ? status : InStep(step, status);
}

// Views read nothing, and early steps have run before any memory was retired.
absl::Status Frame::RunGuarded(int s) {
  const StepPlan& step = impl().plan.steps[s];
  const Graph& graph = *impl().graph;
  if (step.timing != Timing::kEarly && !is_view_[s]) {
    for (const auto& list : {graph.inputs(step.node), graph.captures(step.node)}) {
      for (const ValueId v : list) {
        if (v == kNoValue) continue;
        const absl::Status status = retired_.Check({&views_[v], 1});
        if (!status.ok()) return InStep(step, status);
      }
    }
  }
  KV_RETURN_IF_ERROR(RunStep(s));
  if (step.retires_pair >= 0) {
    const PairPlan& pair = impl().plan.pairs[step.retires_pair];
    retired_.Retire(views_[pair.past],
                    fmt::format("cache \"{}\" after \"{}\" has written it", graph.name(pair.past),
                                graph.NodeName(step.node)));
  }
  return absl::OkStatus();
}

absl::Status Frame::InStep(const StepPlan& step, const absl::Status& status) const {
  const Graph& graph = *impl().graph;
  return Prefixed(
      fmt::format("node \"{}\" ({})", graph.NodeName(step.node), graph.node(step.node).op_type()),
      status);
}

absl::Span<const View> Frame::Outputs(int s) const {
  if (impl().plan.steps[s].timing == Timing::kLate) return out_;
  const Wiring::Operands& operands = impl().wiring.operands[s];
  return absl::MakeSpan(operands_).subspan(operands.outputs, operands.num_outputs);
}

void Frame::Show(int s, const Observer& observer) const {
  const auto outputs = Outputs(s);
  std::vector<View> views(outputs.begin(), outputs.end());
  std::vector<Tensor> dense;
  for (View& view : views) {
    if (view.pitch == 0 || view.size() == 0) continue;
    dense.emplace_back(view.type, view.shape);
    CopyView(view, dense.back().view());
    view = dense.back().view();
  }
  observer(impl().plan.steps[s].node, views);
}

void Frame::CollectInputs(NodeId node) {
  const absl::Span<const ValueId> inputs = impl().graph->inputs(node);
  in_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == kNoValue) {
      in_[i] = View();
    } else {
      in_[i] = views_[inputs[i]];
    }
  }
}

absl::Status Frame::RunLate(const StepPlan& step) {
  const Graph& graph = *impl().graph;
  const absl::Span<const ValueId> outputs = graph.outputs(step.node);
  specs_.resize(outputs.size());
  for (OutputSpec& spec : specs_) {
    spec.type = 0;
    spec.shape.clear();
  }
  KernelContext context = MakeContext(step, in_, {});
  KV_RETURN_IF_ERROR(step.def->shape(context));
  out_.resize(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] == kNoValue) {
      out_[o] = View();
      continue;
    }
    View& view = views_[outputs[o]];
    KV_RETURN_IF_ERROR(PlaceLate(step, static_cast<int>(o), specs_[o], view));
    out_[o] = view;
  }
  if (step.def->compute == nullptr) return absl::OkStatus();
  if (step.writes_pair >= 0) undo_.Save(context.node, in_);
  if (step.poisons) PoisonRows(context.node, in_);
  context.outputs = absl::MakeSpan(out_);
  return step.def->compute(context);
}

absl::Status Frame::PlaceLate(const StepPlan& step, int output, const OutputSpec& spec,
                              View& view) {
  KV_RETURN_IF_ERROR(CheckSpec(step, output, spec));
  const Graph& graph = *impl().graph;
  const ValuePlan& plan = impl().plan.values[graph.outputs(step.node)[output]];
  view.type = spec.type;
  view.shape = spec.shape;
  const int64_t bytes = view.bytes();
  const auto size = static_cast<size_t>(bytes);
  switch (plan.home) {
    case Home::kView:
    case Home::kCache:
      view.data = in_[plan.home == Home::kView ? 0 : step.def->inplace_input].data;
      return absl::OkStatus();
    case Home::kSlot: {
      const int input = step.def->inplace_input;
      if (output == 0 && step.inplace && in_[input].bytes() == bytes) {
        const ValueId from = impl().plan.values[graph.inputs(step.node)[input]].root;
        std::swap(slot_map_[plan.index], slot_map_[impl().plan.values[from].index]);
        view.data = in_[input].data;
        return absl::OkStatus();
      }
      Buffer& slot = slots_[slot_map_[plan.index]];
      KV_RETURN_IF_ERROR(slot.Reserve(size));
      view.data = slot.data();
      return absl::OkStatus();
    }
    case Home::kNext:
      KV_RETURN_IF_ERROR(ReserveNext(plan.index, view));
      view.data = NextOf(plan.index);
      return absl::OkStatus();
    case Home::kOutput:
      KV_RETURN_IF_ERROR(outputs_[plan.index].ReserveUnshared(size));
      view.data = outputs_[plan.index].data();
      return absl::OkStatus();
    default:
      return absl::InternalError("value without memory");
  }
}

void Frame::SetOutput(const StepPlan& step, int output, Tensor tensor) {
  const ValueId v = impl().graph->outputs(step.node)[output];
  if (v == kNoValue) return;
  views_[v] = tensor.view();
  tensors_[v] = std::move(tensor);
}

const View& Frame::output_view(int i) const { return views_[impl().graph->graph_outputs()[i]]; }

absl::StatusOr<Tensor> Frame::Output(int i) {
  const ValueId v = impl().graph->graph_outputs()[i];
  const View& view = views_[v];
  const Plan& plan = impl().plan;
  const ValuePlan& root = plan.values[plan.values[v].root];
  if (root.home == Home::kOutput && root.index == i) {
    return Tensor::Wrap(view, outputs_[i].memory());
  }
  if (root.home == Home::kCall) {
    // The call's tensor is the caller's, unless an output before this one has the same memory.
    bool first = true;
    for (int k = 0; k < i; ++k) {
      const ValueId other = impl().graph->graph_outputs()[k];
      first = first && plan.values[other].root != plan.values[v].root;
    }
    if (first) return Tensor::Wrap(view, tensors_[plan.values[v].root].storage());
  }
  if (view.absent()) return absl::InternalError("graph output was never computed");
  if (view.bytes() < 0) return Tensor::Wrap(view, nullptr).Clone();
  Buffer& buffer = outputs_[i];
  const auto bytes = static_cast<size_t>(view.bytes());
  KV_RETURN_IF_ERROR(buffer.ReserveUnshared(bytes));
  if (bytes > 0) std::memcpy(buffer.data(), view.data, bytes);
  View copy = view;
  copy.data = buffer.data();
  return Tensor::Wrap(std::move(copy), buffer.memory());
}

}  // namespace kvlift::exec
