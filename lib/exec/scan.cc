// Scan-9 and later: a body run over the slices of its inputs.
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "exec/call.h"
#include "exec/kernels/move_util.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

// Attribute `name`, one value per scan input or output; 0 where it is missing.
absl::StatusOr<std::vector<int64_t>> PerValue(const onnx::NodeProto& node, std::string_view name,
                                              size_t count) {
  std::vector<int64_t> values(count, 0);
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() != name) continue;
    values.assign(attribute.ints().begin(), attribute.ints().end());
  }
  if (values.size() != count) {
    return absl::InvalidArgumentError(fmt::format("{} does not have {} values", name, count));
  }
  return values;
}

int64_t Inner(const Shape& shape, size_t axis) {
  return move::Product(shape, axis + 1, shape.size());
}

// Copies between slice `index` of `whole` along `axis` and `part`.
void CopySlice(const View& whole, size_t axis, int64_t index, const View& part, bool to_part) {
  const int64_t inner = Inner(whole.shape, axis), n = whole.shape[axis];
  for (int64_t outer = 0; outer < move::Product(whole.shape, 0, axis); ++outer) {
    const int64_t at = (outer * n + index) * inner;
    if (to_part) {
      move::CopyElements(whole.type, part.data, outer * inner, whole.data, at, inner);
    } else {
      move::CopyElements(whole.type, whole.data, at, part.data, outer * inner, inner);
    }
  }
}

struct Slices {
  View whole;
  size_t axis = 0;
  bool backward = false;
  Tensor slice;
};

absl::StatusOr<std::vector<Slices>> MakeSlices(const onnx::NodeProto& node,
                                               absl::Span<const View> inputs, int64_t* length) {
  KV_ASSIGN_OR_RETURN(const auto axes, PerValue(node, "scan_input_axes", inputs.size()));
  KV_ASSIGN_OR_RETURN(const auto directions,
                      PerValue(node, "scan_input_directions", inputs.size()));
  std::vector<Slices> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto rank = static_cast<int64_t>(inputs[i].shape.size());
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (inputs[i].absent() || axis < 0 || axis >= rank) {
      return absl::InvalidArgumentError(fmt::format("axis of scan input {} is out of range", i));
    }
    Slices s = {inputs[i], static_cast<size_t>(axis), directions[i] != 0, Tensor()};
    const int64_t n = inputs[i].shape[s.axis];
    if (i > 0 && n != *length) {
      return absl::InvalidArgumentError(
          fmt::format("scan inputs have {} and {} slices", *length, n));
    }
    *length = n;
    Shape shape = inputs[i].shape;
    shape.erase(shape.begin() + axis);
    s.slice = Tensor(inputs[i].type, shape);
    result.push_back(std::move(s));
  }
  return result;
}

// `parts` joined on axis 0, which moves to `axis`; last part first if `backward`.
absl::StatusOr<Tensor> Arrange(Tensor stacked, int64_t axis, bool backward) {
  const auto rank = static_cast<int64_t>(stacked.shape().size());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) {
    return absl::InvalidArgumentError("axis of a scan output is out of range");
  }
  if (axis == 0 && !backward) return stacked;
  Shape shape(stacked.shape().begin() + 1, stacked.shape().end());
  const int64_t n = stacked.shape()[0], size = NumElements(shape);
  const Shape part_shape = shape;
  shape.insert(shape.begin() + axis, n);
  Tensor result(stacked.type(), shape);
  Tensor part(stacked.type(), part_shape);
  for (int64_t i = 0; i < n; ++i) {
    move::CopyElements(stacked.type(), part.data(), 0, stacked.data(), i * size, size);
    CopySlice(result.view(), static_cast<size_t>(axis), backward ? n - 1 - i : i, part.view(),
              false);
  }
  return result;
}

}  // namespace

absl::Status Frame::RunScan(const StepPlan& step, Call& call) {
  const onnx::NodeProto& node = impl().graph->node(step.node);
  if (step.opset < 9) return absl::UnimplementedError("Scan-8 is not supported");
  int64_t scanned = 0;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == "num_scan_inputs") scanned = attribute.i();
  }
  if (scanned < 1 || scanned > static_cast<int64_t>(in_.size())) {
    return absl::InvalidArgumentError("num_scan_inputs does not fit");
  }
  const size_t carried = in_.size() - static_cast<size_t>(scanned);
  const std::shared_ptr<const Program>& body = call.plan->bodies[0];
  const size_t body_outputs = body->graph().graph_outputs().size();
  if (body_outputs < carried) return absl::InvalidArgumentError("the body has too few outputs");
  const size_t stacked = body_outputs - carried;
  KV_ASSIGN_OR_RETURN(const auto axes, PerValue(node, "scan_output_axes", stacked));
  KV_ASSIGN_OR_RETURN(const auto directions, PerValue(node, "scan_output_directions", stacked));
  int64_t length = 0;
  KV_ASSIGN_OR_RETURN(std::vector<Slices> slices,
                      MakeSlices(node, absl::MakeSpan(in_).subspan(carried), &length));
  std::vector<Tensor> state;
  for (size_t i = 0; i < carried; ++i) {
    state.push_back(Tensor::Wrap(in_[i], nullptr).Clone());
  }
  std::vector<std::vector<Tensor>> scans(stacked);
  for (int64_t iteration = 0; iteration < length; ++iteration) {
    call.inputs.clear();
    for (const Tensor& tensor : state) call.inputs.push_back(tensor.view());
    for (const Slices& s : slices) {
      const int64_t index = s.backward ? length - 1 - iteration : iteration;
      CopySlice(s.whole, s.axis, index, s.slice.view(), true);
      call.inputs.push_back(s.slice.view());
    }
    KV_RETURN_IF_ERROR(RunBody(call, 0));
    for (size_t i = 0; i < carried; ++i) state[i] = std::move(call.results[i]);
    for (size_t i = 0; i < stacked; ++i) scans[i].push_back(std::move(call.results[carried + i]));
  }
  call.results.clear();
  for (Tensor& tensor : state) call.results.push_back(std::move(tensor));
  for (size_t i = 0; i < stacked; ++i) {
    KV_ASSIGN_OR_RETURN(Tensor all, StackResults(scans[i], *body, carried + i));
    KV_ASSIGN_OR_RETURN(Tensor arranged, Arrange(std::move(all), axes[i], directions[i] != 0));
    call.results.push_back(std::move(arranged));
  }
  return absl::OkStatus();
}

}  // namespace kvlift::exec
