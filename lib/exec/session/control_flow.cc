// Nodes that run other programs: If, Loop and functions. (Scan is in scan.cc.)
#include "exec/session/control_flow.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "exec/memory/budget.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

absl::StatusOr<bool> ReadBool(const View& view, const char* what) {
  if (view.type != onnx::TensorProto::BOOL || view.size() != 1) {
    return absl::InvalidArgumentError(
        fmt::format("{} must be one bool, is {}", what, ShapeString(view.shape)));
  }
  return *view.as<uint8_t>() != 0;
}

}  // namespace

absl::StatusOr<Tensor> StackResults(const std::vector<Tensor>& parts, const Program& body,
                                    size_t index) {
  if (parts.empty()) {
    const Graph& graph = body.graph();
    const TensorType& type = graph.type(graph.graph_outputs()[index]);
    if (type.elem_type == 0 || !type.shape.has_value()) {
      return absl::UnimplementedError("the type of a scan output without iterations is not known");
    }
    Shape shape = {0};
    for (const Dim& dim : *type.shape) shape.push_back(dim.value.value_or(0));
    return Tensor(type.elem_type, shape);
  }
  Shape shape = parts[0].shape();
  shape.insert(shape.begin(), static_cast<int64_t>(parts.size()));
  Tensor stacked(parts[0].type(), shape);
  const int64_t bytes = parts[0].view().bytes();
  if (bytes < 0) return absl::InvalidArgumentError("scan outputs are tensors of numbers");
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].shape() != parts[0].shape() || parts[i].type() != parts[0].type()) {
      return absl::InvalidArgumentError(
          fmt::format("scan output has shape {} in iteration 0, {} in iteration {}",
                      ShapeString(parts[0].shape()), ShapeString(parts[i].shape()), i));
    }
    if (bytes > 0) {
      std::memcpy(stacked.data() + static_cast<int64_t>(i) * bytes, parts[i].data(),
                  static_cast<size_t>(bytes));
    }
  }
  return stacked;
}

void Frame::AddMemory(MemoryUse* use) const {
  const auto sum = [](const std::vector<Buffer>& buffers) {
    size_t bytes = 0;
    for (const Buffer& buffer : buffers) bytes += buffer.capacity();
    return static_cast<int64_t>(bytes);
  };
  use->arena += static_cast<int64_t>(arena_.capacity());
  use->indices += sum(early_);
  use->slots += sum(slots_);
  use->outputs += sum(outputs_);
  for (const std::unique_ptr<Call>& call : calls_) {
    if (call == nullptr) continue;
    for (const std::unique_ptr<Frame>& frame : call->frames) {
      if (frame != nullptr) frame->AddMemory(use);
    }
  }
}

absl::Status Frame::RunCall(const StepPlan& step) {
  std::unique_ptr<Call>& call = calls_[step.node];
  if (call == nullptr) {
    call = std::make_unique<Call>();
    call->plan = impl().calls[step.node].get();
    call->frames.resize(call->plan->kind == CallKind::kIf ? 2 : 1);
  }
  // Releases the results of the last run, so that the body can reuse their memory.
  const absl::Span<const ValueId> outputs = impl().graph->outputs(step.node);
  for (const ValueId v : outputs) {
    if (v != kNoValue) tensors_[v] = Tensor();
  }
  call->results.clear();
  call->inputs.clear();
  switch (call->plan->kind) {
    case CallKind::kIf:
      KV_RETURN_IF_ERROR(RunIf(step, *call));
      break;
    case CallKind::kLoop:
      KV_RETURN_IF_ERROR(RunLoop(step, *call));
      break;
    case CallKind::kFunction:
      KV_RETURN_IF_ERROR(RunFunction(step, *call));
      break;
    case CallKind::kScan:
      KV_RETURN_IF_ERROR(RunScan(step, *call));
      break;
    case CallKind::kSequenceOp: {
      KV_ASSIGN_OR_RETURN(Tensor result, call->plan->object(impl().graph->node(step.node), in_));
      call->results.push_back(std::move(result));
      break;
    }
  }
  if (call->results.size() < outputs.size()) {
    return absl::InvalidArgumentError(
        fmt::format("body has {} outputs, {} wanted", call->results.size(), outputs.size()));
  }
  out_.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    out_[i] = outputs[i] == kNoValue ? View() : call->results[i].view();
    SetOutput(step, static_cast<int>(i), std::move(call->results[i]));
  }
  call->results.clear();
  return absl::OkStatus();
}

// Runs a body on call.inputs followed by the captured values; fills call.results.
absl::Status Frame::RunBody(Call& call, int body) {
  std::unique_ptr<Frame>& frame = call.frames[body];
  if (frame == nullptr) {
    frame =
        std::make_unique<Frame>(call.function != nullptr ? call.function : call.plan->bodies[body]);
  }
  KV_RETURN_IF_ERROR(StepClock::Check());
  for (const ValueId v : call.plan->captures) call.inputs.push_back(views_[v]);
  static const Observer kNoObserver;
  KV_RETURN_IF_ERROR(frame->Run(call.inputs, {}, kNoObserver));
  const size_t count = frame->impl().graph->graph_outputs().size();
  call.results.resize(count);
  for (size_t i = 0; i < count; ++i) {
    KV_ASSIGN_OR_RETURN(call.results[i], frame->Output(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::Status Frame::RunIf(const StepPlan&, Call& call) {
  if (in_.empty()) return absl::InvalidArgumentError("no condition");
  KV_ASSIGN_OR_RETURN(const bool condition, ReadBool(in_[0], "the condition"));
  return RunBody(call, condition ? 0 : 1);
}

absl::Status Frame::RunFunction(const StepPlan& step, Call& call) {
  if (call.plan->bodies.empty()) {  // the body depends on element types
    std::vector<int32_t> types;
    for (const View& view : in_) types.push_back(view.type);
    if (call.function == nullptr || types != call.function_types) {
      const Program::Impl& program = impl();
      CompileOptions options;
      options.order = program.options.order;
      options.threads = program.options.threads;
      options.base_dir = program.options.base_dir;
      options.bodies = program.options.bodies;
      KV_ASSIGN_OR_RETURN(
          call.function,
          CompileFunction(program.graph->model(), program.graph->node(step.node), types, options));
      call.function_types = types;
      call.frames[0] = nullptr;
    }
  }
  // Omitted inputs and outputs have no counterpart in the body (see CompileFunction).
  for (const View& view : in_) {
    if (!view.absent()) call.inputs.push_back(view);
  }
  KV_RETURN_IF_ERROR(RunBody(call, 0));
  const absl::Span<const ValueId> outputs = impl().graph->outputs(step.node);
  for (size_t i = 0; i < outputs.size() && i <= call.results.size(); ++i) {
    if (outputs[i] == kNoValue) call.results.emplace(call.results.begin() + i);
  }
  return absl::OkStatus();
}

absl::Status Frame::RunLoop(const StepPlan& step, Call& call) {
  const size_t outputs = impl().graph->outputs(step.node).size();
  if (in_.size() < 2) in_.resize(2);
  const size_t carried = in_.size() - 2;
  int64_t limit = std::numeric_limits<int64_t>::max();
  if (!in_[0].absent()) {
    if (in_[0].type != onnx::TensorProto::INT64 || in_[0].size() != 1) {
      return absl::InvalidArgumentError("the trip count must be one int64");
    }
    limit = *in_[0].as<int64_t>();
  }
  bool condition = true;
  if (!in_[1].absent()) {
    KV_ASSIGN_OR_RETURN(condition, ReadBool(in_[1], "the condition"));
  }
  const std::shared_ptr<const Program>& body = call.plan->bodies[0];
  const size_t body_outputs = body->graph().graph_outputs().size();
  if (body_outputs < carried + 1) {
    return absl::InvalidArgumentError(
        fmt::format("the body has {} outputs for {} carried values", body_outputs, carried));
  }
  std::vector<Tensor> state;
  for (size_t i = 0; i < carried; ++i) {
    state.push_back(Tensor::Wrap(in_[i + 2], nullptr).Clone());
  }
  std::vector<std::vector<Tensor>> scans(body_outputs - carried - 1);
  Charge charge;
  for (int64_t iteration = 0; condition && iteration < limit; ++iteration) {
    KV_RETURN_IF_ERROR(charge.Add(scans.size() * sizeof(Tensor)));
    uint8_t flag = 1;
    call.inputs.clear();
    call.inputs.push_back({onnx::TensorProto::INT64, {}, reinterpret_cast<std::byte*>(&iteration)});
    call.inputs.push_back({onnx::TensorProto::BOOL, {}, reinterpret_cast<std::byte*>(&flag)});
    for (const Tensor& tensor : state) call.inputs.push_back(tensor.view());
    KV_RETURN_IF_ERROR(RunBody(call, 0));
    KV_ASSIGN_OR_RETURN(condition, ReadBool(call.results[0].view(), "the body's condition"));
    for (size_t i = 0; i < carried; ++i) state[i] = std::move(call.results[i + 1]);
    for (size_t i = 0; i < scans.size(); ++i) {
      scans[i].push_back(std::move(call.results[carried + 1 + i]));
    }
  }
  call.results.clear();
  for (Tensor& tensor : state) call.results.push_back(std::move(tensor));
  for (size_t i = 0; i < scans.size() && call.results.size() < outputs; ++i) {
    KV_ASSIGN_OR_RETURN(Tensor stacked, StackResults(scans[i], *body, carried + 1 + i));
    call.results.push_back(std::move(stacked));
  }
  return absl::OkStatus();
}

}  // namespace kvlift::exec
