#include "exec/session/sequence_ops.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/memory/budget.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;
using Inputs = absl::Span<const View>;
using Items = std::vector<Tensor>;

absl::Status Invalid(const std::string& what) { return absl::InvalidArgumentError(what); }

// Returns a copy that shares no memory with what later nodes write.
Tensor Keep(const View& view) { return Tensor::Wrap(view, nullptr).Clone(); }

Tensor Scalar(int32_t type, int64_t value) {
  Tensor result(type, {});
  std::memcpy(result.data(), &value, static_cast<size_t>(result.view().bytes()));
  return result;
}

bool Has(Inputs inputs, size_t i) { return i < inputs.size() && !inputs[i].absent(); }

absl::StatusOr<const Items*> SequenceOf(Inputs inputs) {
  if (!Has(inputs, 0) || inputs[0].type != kSequence) return Invalid("input 0 is no sequence");
  return inputs[0].as<Items>();
}

absl::Status NeedTensor(Inputs inputs, size_t i) {
  if (Has(inputs, i) && inputs[i].bytes() >= 0) return absl::OkStatus();
  return Invalid(fmt::format("input {} is no tensor of numbers", i));
}

// Returns the integer of input `i` as a position in [0, count); negative ones count from the end.
absl::StatusOr<int64_t> Position(Inputs inputs, size_t i, int64_t count) {
  const View& view = inputs[i];
  if (!move::IsIndexType(view.type) || view.size() != 1) return Invalid("position is no integer");
  const int64_t given = move::IndexAt(view, 0);
  const int64_t at = given < 0 ? given + count : given;
  if (at < 0 || at >= count) return Invalid(fmt::format("position {} is out of range", given));
  return at;
}

absl::StatusOr<Tensor> Construct(const NodeProto&, Inputs inputs) {
  Items items;
  for (const View& view : inputs) {
    if (view.absent() || view.type != inputs[0].type) {
      return Invalid("the elements of a sequence have one type");
    }
    items.push_back(Keep(view));
  }
  return Tensor::Sequence(std::move(items));
}

absl::StatusOr<Tensor> Empty(const NodeProto&, Inputs) { return Tensor::Sequence({}); }

absl::StatusOr<Tensor> Insert(const NodeProto&, Inputs inputs) {
  KV_ASSIGN_OR_RETURN(const Items* sequence, SequenceOf(inputs));
  if (!Has(inputs, 1)) return Invalid("no tensor to insert");
  Items items = *sequence;
  if (!items.empty() && items[0].type() != inputs[1].type) {
    return Invalid("the elements of a sequence have one type");
  }
  auto at = static_cast<int64_t>(items.size());
  if (Has(inputs, 2)) {
    const bool end = inputs[2].size() == 1 && move::IsIndexType(inputs[2].type) &&
                     move::IndexAt(inputs[2], 0) == at;
    if (!end) {
      KV_ASSIGN_OR_RETURN(at, Position(inputs, 2, at));
    }
  }
  items.insert(items.begin() + at, Keep(inputs[1]));
  return Tensor::Sequence(std::move(items));
}

absl::StatusOr<Tensor> Erase(const NodeProto&, Inputs inputs) {
  KV_ASSIGN_OR_RETURN(const Items* sequence, SequenceOf(inputs));
  Items items = *sequence;
  if (items.empty()) return Invalid("the sequence is empty");
  int64_t at = static_cast<int64_t>(items.size()) - 1;
  if (Has(inputs, 1)) {
    KV_ASSIGN_OR_RETURN(at, Position(inputs, 1, at + 1));
  }
  items.erase(items.begin() + at);
  return Tensor::Sequence(std::move(items));
}

absl::StatusOr<Tensor> At(const NodeProto&, Inputs inputs) {
  KV_ASSIGN_OR_RETURN(const Items* items, SequenceOf(inputs));
  if (!Has(inputs, 1)) return Invalid("no position");
  KV_ASSIGN_OR_RETURN(const int64_t at, Position(inputs, 1, static_cast<int64_t>(items->size())));
  return (*items)[at].Clone();
}

absl::StatusOr<Tensor> Length(const NodeProto&, Inputs inputs) {
  KV_ASSIGN_OR_RETURN(const Items* items, SequenceOf(inputs));
  return Scalar(TensorProto::INT64, static_cast<int64_t>(items->size()));
}

// Returns elements [begin, end) of an axis as a separate tensor.
Tensor Part(const View& whole, size_t axis, int64_t begin, int64_t end) {
  Shape shape = whole.shape;
  shape[axis] = end - begin;
  Tensor part(whole.type, shape);
  const int64_t inner = move::Product(whole.shape, axis + 1, whole.shape.size());
  const int64_t run = (end - begin) * inner;
  for (int64_t outer = 0; outer < move::Product(whole.shape, 0, axis); ++outer) {
    move::CopyElements(whole.type, part.data(), outer * run, whole.data,
                       (outer * whole.shape[axis] + begin) * inner, run);
  }
  return part;
}

// Returns the lengths of the parts of an axis of n elements.
absl::StatusOr<std::vector<int64_t>> PartLengths(Inputs inputs, int64_t n) {
  std::vector<int64_t> lengths;
  if (!Has(inputs, 1)) {
    lengths.assign(static_cast<size_t>(n), 1);
    return lengths;
  }
  if (!move::IsIndexType(inputs[1].type) || inputs[1].shape.size() > 1) {
    return Invalid("split is neither an integer nor a list of them");
  }
  int64_t rest = n;
  const int64_t count = inputs[1].size();
  const bool equal = inputs[1].shape.empty();
  for (int64_t i = 0; equal ? rest > 0 : i < count; ++i) {
    const int64_t length = move::IndexAt(inputs[1], equal ? 0 : i);
    if (length < (equal ? 1 : 0)) return Invalid(fmt::format("split has a part of {}", length));
    if (!equal && length > rest) return Invalid("the parts are longer than the axis");
    lengths.push_back(std::min(length, rest));
    rest -= lengths.back();
  }
  if (rest != 0) return Invalid("the parts are shorter than the axis");
  return lengths;
}

absl::StatusOr<Tensor> SplitTo(const NodeProto& node, Inputs inputs) {
  KV_RETURN_IF_ERROR(NeedTensor(inputs, 0));
  const View& whole = inputs[0];
  const int64_t axis =
      math::NormalAxis(IntAttribute(node, "axis", 0), static_cast<int64_t>(whole.shape.size()));
  if (axis < 0) return Invalid("axis is out of range");
  // Each part takes memory, even if it has no elements.
  Charge charge;
  KV_RETURN_IF_ERROR(charge.Add(static_cast<size_t>(whole.shape[axis]) * sizeof(Tensor)));
  KV_ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, PartLengths(inputs, whole.shape[axis]));
  const bool drop = !Has(inputs, 1) && IntAttribute(node, "keepdims", 1) == 0;
  Items items;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    Tensor part = Part(whole, static_cast<size_t>(axis), begin, begin + length);
    begin += length;
    if (drop) {
      View view = part.view();
      view.shape.erase(view.shape.begin() + axis);
      part = Tensor::Wrap(std::move(view), part.storage());
    }
    items.push_back(std::move(part));
  }
  return Tensor::Sequence(std::move(items));
}

absl::StatusOr<Tensor> Join(const NodeProto& node, Inputs inputs) {
  KV_ASSIGN_OR_RETURN(const Items* items, SequenceOf(inputs));
  if (items->empty()) return Invalid("the sequence is empty");
  const bool stack = IntAttribute(node, "new_axis", 0) != 0;
  const auto rank = static_cast<int64_t>((*items)[0].shape().size()) + (stack ? 1 : 0);
  const int64_t axis = math::NormalAxis(IntAttribute(node, "axis", 0), rank);
  if (axis < 0) return Invalid("axis is out of range");
  std::vector<View> parts;
  Shape shape;
  for (const Tensor& item : *items) {
    View part = item.view();
    if (part.bytes() < 0) return Invalid("the elements are no tensors of numbers");
    if (stack) part.shape.insert(part.shape.begin() + axis, 1);
    Shape like = part.shape;
    if (!shape.empty() && like.size() == shape.size()) like[axis] = shape[axis];
    if (!shape.empty() && like != shape) {
      return Invalid(
          fmt::format("shapes {} and {} do not fit", ShapeString(shape), ShapeString(part.shape)));
    }
    if (shape.empty()) {
      shape = part.shape;
    } else {
      shape[axis] += part.shape[axis];
    }
    parts.push_back(std::move(part));
  }
  Tensor result(parts[0].type, shape);
  const int64_t inner = move::Product(shape, axis + 1, shape.size());
  int64_t begin = 0;
  for (const View& part : parts) {
    const int64_t run = part.shape[axis] * inner;
    for (int64_t outer = 0; outer < move::Product(shape, 0, axis); ++outer) {
      move::CopyElements(part.type, result.data(), (outer * shape[axis] + begin) * inner, part.data,
                         outer * run, run);
    }
    begin += part.shape[axis];
  }
  return result;
}

absl::StatusOr<Tensor> MakeOptional(const NodeProto&, Inputs inputs) {
  return Has(inputs, 0) ? Keep(inputs[0]) : Tensor::Nothing();
}

absl::StatusOr<Tensor> HasElement(const NodeProto&, Inputs inputs) {
  return Scalar(TensorProto::BOOL, Has(inputs, 0) && inputs[0].type != kNothing ? 1 : 0);
}

absl::StatusOr<Tensor> GetElement(const NodeProto&, Inputs inputs) {
  if (!Has(inputs, 0) || inputs[0].type == kNothing) return Invalid("the optional value is empty");
  return Keep(inputs[0]);
}

absl::StatusOr<Tensor> EqualStrings(const NodeProto&, Inputs inputs) {
  Shape shape;
  if (inputs.size() != 2 || inputs[0].type != TensorProto::STRING ||
      inputs[1].type != TensorProto::STRING ||
      !math::BroadcastShapes(inputs[0].shape, inputs[1].shape, &shape)) {
    return Invalid("two tensors of strings that broadcast are needed");
  }
  const auto left = math::BroadcastStrides(inputs[0].shape, shape);
  const auto right = math::BroadcastStrides(inputs[1].shape, shape);
  Tensor result(TensorProto::BOOL, shape);
  for (int64_t i = 0; i < result.size(); ++i) {
    int64_t rest = i, a = 0, b = 0;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      a += rest % shape[d] * left[d];
      b += rest % shape[d] * right[d];
    }
    const bool equal = inputs[0].as<std::string>()[a] == inputs[1].as<std::string>()[b];
    result.view().as<uint8_t>()[i] = equal ? 1 : 0;
  }
  return result;
}

struct Entry {
  std::string_view op_type;
  SequenceOpFn run;
};

constexpr Entry kObjectOps[] = {
    {"SequenceConstruct", Construct},
    {"SequenceEmpty", Empty},
    {"SequenceInsert", Insert},
    {"SequenceErase", Erase},
    {"SequenceAt", At},
    {"SequenceLength", Length},
    {"SplitToSequence", SplitTo},
    {"ConcatFromSequence", Join},
    {"Optional", MakeOptional},
    {"OptionalHasElement", HasElement},
    {"OptionalGetElement", GetElement},
};

}  // namespace

SequenceOpFn FindSequenceOp(const Graph& graph, NodeId node) {
  for (const Entry& entry : kObjectOps) {
    if (graph.Is(node, entry.op_type)) return entry.run;
  }
  if (!graph.Is(node, "Equal") || graph.inputs(node).empty()) return nullptr;
  const ValueId v = graph.inputs(node)[0];
  const bool strings = v != kNoValue && graph.type(v).elem_type == TensorProto::STRING;
  return strings ? EqualStrings : nullptr;
}

}  // namespace kvlift::exec
