// Scan of opset 9 and later: runs a body over the slices of its inputs.
#include <algorithm>

#include "base/status.h"
#include "oracle/core/interpreter.h"
#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

// The slices of a tensor along an axis, in one of the two directions.
struct Slices {
  const Value* whole = nullptr;
  int64_t axis = 0, count = 0;
  bool backward = false;

  Value At(int64_t step) const {
    const int64_t index = backward ? count - 1 - step : step;
    Dims dims = whole->dims();
    dims.erase(dims.begin() + axis);
    const Dims strides = StridesOf(whole->dims());
    std::vector<int64_t> from;
    ForEach(dims, [&](int64_t, const Dims& at) {
      Dims place = at;
      place.insert(place.begin() + axis, index);
      from.push_back(Flat(place, strides));
    });
    return Take(*whole, dims, from);
  }
};

// Stacks the results of all steps along a new axis. Absent if the axis is out of range.
Value JoinedAlong(const std::vector<Value>& parts, int64_t axis, bool backward) {
  Dims dims = parts[0].dims();
  axis = AxisOf(axis, parts[0].rank() + 1);
  if (axis < 0) return Value();
  const Dims strides = StridesOf(dims);
  const auto count = static_cast<int64_t>(parts.size());
  dims.insert(dims.begin() + axis, count);
  std::vector<const Value*> sources;
  for (const Value& part : parts) sources.push_back(&part);
  std::vector<Pick> picks;
  ForEach(dims, [&](int64_t, const Dims& at) {
    Dims place = at;
    place.erase(place.begin() + axis);
    const int64_t step = backward ? count - 1 - at[axis] : at[axis];
    picks.push_back({static_cast<int>(step), Flat(place, strides)});
  });
  return Collect(sources, dims, picks);
}

// Reads one number per value, 0 without the attribute. Returns false if there are too few or too
// many.
bool PerValue(const onnx::NodeProto& node, const char* name, size_t count,
              std::vector<int64_t>* numbers) {
  *numbers = IntsAttribute(node, name);
  if (numbers->empty()) numbers->assign(count, 0);
  return numbers->size() == count;
}

}  // namespace

absl::StatusOr<std::vector<Value>> Interpreter::RunScan(const onnx::NodeProto& node,
                                                        const Setting& setting,
                                                        const std::vector<Value>& in,
                                                        const Scope& scope) const {
  const onnx::AttributeProto* body = FindAttribute(node, "body");
  const auto scanned = static_cast<size_t>(IntAttribute(node, "num_scan_inputs", 0));
  if (body == nullptr || scanned < 1 || scanned > in.size()) {
    return absl::InvalidArgumentError("Scan without a body or inputs");
  }
  const size_t carried = in.size() - scanned;
  const auto results = static_cast<size_t>(body->g().output_size());
  std::vector<int64_t> axes, ways, result_axes, result_ways;
  if (results < carried || !PerValue(node, "scan_input_axes", scanned, &axes) ||
      !PerValue(node, "scan_input_directions", scanned, &ways) ||
      !PerValue(node, "scan_output_axes", results - carried, &result_axes) ||
      !PerValue(node, "scan_output_directions", results - carried, &result_ways)) {
    return absl::InvalidArgumentError("attributes of Scan");
  }
  std::vector<Slices> slices;
  for (size_t k = 0; k < scanned; ++k) {
    const Value& whole = in[carried + k];
    const int64_t axis = AxisOf(axes[k], whole.rank());
    if (whole.absent() || axis < 0) return absl::InvalidArgumentError("axis of Scan");
    slices.push_back({&whole, axis, whole.dims()[axis], ways[k] != 0});
    if (slices[k].count != slices[0].count) return absl::InvalidArgumentError("lengths of Scan");
  }
  std::vector<Value> state(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(carried));
  std::vector<std::vector<Value>> parts(results - carried);
  for (int64_t step = 0; step < slices[0].count; ++step) {
    std::vector<Value> feeds = state;
    for (const Slices& s : slices) feeds.push_back(s.At(step));
    KV_ASSIGN_OR_RETURN(std::vector<Value> out, RunBody(body->g(), setting, scope, feeds));
    state.assign(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(carried));
    for (size_t k = 0; k < parts.size(); ++k) parts[k].push_back(std::move(out[carried + k]));
  }
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[k].empty()) return absl::UnimplementedError("Scan of nothing, with slices");
    for (const Value& part : parts[k]) {
      if (part.dims() != parts[k][0].dims()) {
        return absl::InvalidArgumentError("slices of several shapes");
      }
    }
    state.push_back(JoinedAlong(parts[k], result_axes[k], result_ways[k] != 0));
    if (state.back().absent()) return absl::InvalidArgumentError("axis of a result of Scan");
  }
  return state;
}

}  // namespace kvlift::oracle
