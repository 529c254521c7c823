// Scan: runs a body over the slices of its inputs.
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "exec/kernels/common/move_util.h"
#include "exec/memory/budget.h"
#include "exec/session/control_flow.h"
#include "fmt/format.h"

namespace kvlift::exec {

// A scan input and its current slice, which the body reads.
struct Frame::Slices {
  View whole;
  size_t axis = 0;
  bool backward = false;
  Tensor slice;
};

namespace {

// Returns attribute `name`, one value per scan input or output; 0 where it is missing.
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

// Copies slice `index` of `whole` along `axis` to `part` or, if not `to_part`, from it.
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

// The template parameter is Frame::Slices, which only members can name.
template <typename Slices>
absl::StatusOr<std::vector<Slices>> MakeSlices(const onnx::NodeProto& node,
                                               absl::Span<const View> inputs, int64_t* length) {
  KV_ASSIGN_OR_RETURN(const auto axes, PerValue(node, "scan_input_axes", inputs.size()));
  KV_ASSIGN_OR_RETURN(const auto directions,
                      PerValue(node, "scan_input_directions", inputs.size()));
  std::vector<Slices> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto rank = static_cast<int64_t>(inputs[i].shape.size());
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (inputs[i].bytes() < 0 || axis < 0 || axis >= rank) {
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

// Moves axis 0 of the stacked parts to `axis`; reverses their order if `backward`.
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
  int64_t scanned = 0;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == "num_scan_inputs") scanned = attribute.i();
  }
  if (scanned < 1 || scanned > static_cast<int64_t>(in_.size())) {
    return absl::InvalidArgumentError("num_scan_inputs does not fit");
  }
  if (step.opset < 9) {
    KV_ASSIGN_OR_RETURN(const auto ways,
                        PerValue(node, "directions", static_cast<size_t>(scanned)));
    return RunBatchScan(call, scanned, ways);
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
                      MakeSlices<Slices>(node, absl::MakeSpan(in_).subspan(carried), &length));
  std::vector<Tensor> state;
  for (size_t i = 0; i < carried; ++i) {
    state.push_back(Tensor::Wrap(in_[i], nullptr).Clone());
  }
  std::vector<std::vector<Tensor>> scans(stacked);
  KV_RETURN_IF_ERROR(Iterate(call, length, slices, state, scans));
  call.results.clear();
  for (Tensor& tensor : state) call.results.push_back(std::move(tensor));
  for (size_t i = 0; i < stacked; ++i) {
    KV_ASSIGN_OR_RETURN(Tensor all, StackResults(scans[i], *body, carried + i));
    KV_ASSIGN_OR_RETURN(Tensor arranged, Arrange(std::move(all), axes[i], directions[i] != 0));
    call.results.push_back(std::move(arranged));
  }
  return absl::OkStatus();
}

absl::Status Frame::Iterate(Call& call, int64_t length, std::vector<Slices>& slices,
                            std::vector<Tensor>& state, std::vector<std::vector<Tensor>>& scans) {
  Charge charge;
  for (int64_t iteration = 0; iteration < length; ++iteration) {
    KV_RETURN_IF_ERROR(charge.Add(scans.size() * sizeof(Tensor)));
    call.inputs.clear();
    for (const Tensor& tensor : state) call.inputs.push_back(tensor.view());
    for (const Slices& s : slices) {
      const int64_t index = s.backward ? length - 1 - iteration : iteration;
      CopySlice(s.whole, s.axis, index, s.slice.view(), true);
      call.inputs.push_back(s.slice.view());
    }
    KV_RETURN_IF_ERROR(RunBody(call, 0));
    for (size_t i = 0; i < state.size(); ++i) state[i] = std::move(call.results[i]);
    for (size_t i = 0; i < scans.size(); ++i) {
      scans[i].push_back(std::move(call.results[state.size() + i]));
    }
  }
  return absl::OkStatus();
}

// Scan-8: sequence lengths, states and scan inputs have a batch axis in front of all others. Scan
// outputs of shorter sequences are padded with zeros.
absl::Status Frame::RunBatchScan(Call& call, int64_t scanned,
                                 const std::vector<int64_t>& directions) {
  const size_t body_outputs = call.plan->bodies[0]->graph().graph_outputs().size();
  const size_t first_scan = in_.size() - static_cast<size_t>(scanned);
  const size_t carried = first_scan - 1;
  if (first_scan < 1 || body_outputs < carried) {
    return absl::InvalidArgumentError("the body has too few outputs");
  }
  const std::vector<View> inputs(in_.begin() + 1, in_.end());
  const View lengths = in_[0];
  const View& sample = inputs[carried];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape;
    if (inputs[i].bytes() < 0 || shape.size() < (i < carried ? 1 : 2) || sample.shape.size() < 2 ||
        shape[0] != sample.shape[0] || (i >= carried && shape[1] != sample.shape[1])) {
      return absl::InvalidArgumentError(fmt::format("shape of input {} does not fit", i + 1));
    }
  }
  const int64_t batch = sample.shape[0], longest = sample.shape[1];
  if (!lengths.absent() &&
      (lengths.type != onnx::TensorProto::INT64 || lengths.shape != Shape{batch})) {
    return absl::InvalidArgumentError("sequence_lens must have one int64 per sequence");
  }
  std::vector<Tensor> results(body_outputs);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = lengths.absent() ? longest : lengths.as<int64_t>()[b];
    if (length < 0 || length > longest) {
      return absl::InvalidArgumentError(fmt::format("sequence {} has length {}", b, length));
    }
    std::vector<Tensor> state;
    std::vector<Tensor> wholes;
    std::vector<Slices> slices;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor part(inputs[i].type, Shape(inputs[i].shape.begin() + 1, inputs[i].shape.end()));
      CopySlice(inputs[i], 0, b, part.view(), true);
      if (i < carried) {
        state.push_back(std::move(part));
        continue;
      }
      const Shape slice(part.shape().begin() + 1, part.shape().end());
      slices.push_back({part.view(), 0, directions[i - carried] != 0, Tensor(part.type(), slice)});
      wholes.push_back(std::move(part));
    }
    std::vector<std::vector<Tensor>> scans(body_outputs - carried);
    KV_RETURN_IF_ERROR(Iterate(call, length, slices, state, scans));
    for (size_t i = 0; i < scans.size(); ++i) {
      KV_ASSIGN_OR_RETURN(Tensor stacked,
                          StackResults(scans[i], *call.plan->bodies[0], carried + i));
      Shape shape = stacked.shape();
      shape[0] = longest;
      Tensor padded = Tensor::Zeros(stacked.type(), shape);
      move::CopyElements(padded.type(), padded.data(), 0, stacked.data(), 0, stacked.size());
      state.push_back(std::move(padded));
    }
    for (size_t i = 0; i < body_outputs; ++i) {
      Shape shape = state[i].shape();
      shape.insert(shape.begin(), batch);
      if (b == 0) results[i] = Tensor(state[i].type(), shape);
      if (results[i].shape() != shape || results[i].type() != state[i].type()) {
        return absl::InvalidArgumentError(fmt::format("output {} changes its shape", i));
      }
      CopySlice(results[i].view(), 0, b, state[i].view(), false);
    }
  }
  if (batch == 0) return absl::UnimplementedError("Scan-8 of no sequence");
  call.results = std::move(results);
  return absl::OkStatus();
}

}  // namespace kvlift::exec
