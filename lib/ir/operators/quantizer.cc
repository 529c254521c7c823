#include "ir/operators/quantizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fmt/format.h"
#include "ir/operators/operator_traits.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// Scales beyond these could make products of codes that are infinite or lose bits.
constexpr double kLeastScale = 1e-30, kMostScale = 1e30;

// Operands of QuantizeLinear and DequantizeLinear.
constexpr size_t kScale = 1, kZeroPoint = 2;

// Returns the node that makes a value, looked at through Identity nodes; kNoNode if no node does.
NodeId MakerOf(const Graph& graph, ValueId v) {
  v = BehindIdentity(graph, v);
  return v == kNoValue ? kNoNode : graph.producer(v);
}

// Returns the constants of a QuantizeLinear or DequantizeLinear; nullopt if they are not constants,
// if there are several scales, or if an attribute changes what the node computes.
std::optional<UniformQuantizer> ConstantsOf(const Graph& graph, NodeId n) {
  for (const auto& attribute : graph.node(n).attribute()) {
    const std::string_view name = attribute.name();
    const bool neutral = name == "axis" || (name == "saturate" && attribute.i() == 1) ||
                         (name == "block_size" && attribute.i() == 0);
    if (!neutral) return std::nullopt;
  }
  const auto inputs = graph.inputs(n);
  if (inputs.size() <= kScale || graph.outputs(n).size() != 1) return std::nullopt;
  const TensorProto* scale = ConstantBehind(graph, inputs[kScale]);
  if (scale == nullptr || scale->data_type() != TensorProto::FLOAT) return std::nullopt;
  const auto numbers = ReadFloats(*scale);
  if (!numbers.ok() || numbers->size() != 1) return std::nullopt;
  UniformQuantizer q;
  q.codes = TensorProto::UINT8;
  q.scale = numbers->front();
  if (!(q.scale >= kLeastScale && q.scale <= kMostScale)) return std::nullopt;
  if (inputs.size() > kZeroPoint && inputs[kZeroPoint] != kNoValue) {
    const TensorProto* zero = ConstantBehind(graph, inputs[kZeroPoint]);
    if (zero == nullptr) return std::nullopt;
    const auto values = ReadInts(*zero);
    if (!values.ok() || values->size() != 1) return std::nullopt;
    q.codes = zero->data_type();
    q.zero_point = values->front();
  }
  return q;
}

struct Range {
  int64_t low = 0, high = 0;
};

std::optional<Range> RangeOfCodes(int32_t type) {
  switch (type) {
    case TensorProto::INT8:
      return Range{-128, 127};
    case TensorProto::UINT8:
      return Range{0, 255};
    case TensorProto::INT16:
      return Range{-32768, 32767};
    case TensorProto::UINT16:
      return Range{0, 65535};
    default:
      return std::nullopt;
  }
}

// Finds the quantiser of all parts of a value but one, the past.
class PartReader {
 public:
  PartReader(const Graph& graph, ValueId past) : graph_(graph), past_(past) {}

  // Returns false if a part has no quantiser, or another one than the parts before.
  bool Read(ValueId v) {
    if (v == kNoValue || ++read_ > kMostValues) return false;
    if (v == past_) return true;
    if (const auto quantizer = QuantizerMaking(graph_, v)) {
      if (found_ && found_ != quantizer) return false;
      found_ = quantizer;
      rounds_ = rounds_ || RoundingOf(graph_, v) || HoldsPast(v);
      return true;
    }
    const NodeId n = graph_.producer(v);
    if (n == kNoNode) return false;
    const std::vector<int> moved = MovedOperands(graph_.node(n));
    return !moved.empty() && std::all_of(moved.begin(), moved.end(),
                                         [&](int k) { return Read(graph_.inputs(n)[k]); });
  }

  // Absent if all quantisers that were found only give codes their numbers, and round nothing.
  std::optional<UniformQuantizer> found() const { return rounds_ ? found_ : std::nullopt; }

 private:
  static constexpr int kMostValues = 32;

  // Returns true if elements of the past, moved or rounded, are among those of v.
  bool HoldsPast(ValueId v) {
    if (v == kNoValue || ++read_ > kMostValues) return false;
    if (v == past_) return true;
    const NodeId n = graph_.producer(v);
    if (n == kNoNode) return false;
    if (graph_.Is(n, "QuantizeLinear") || graph_.Is(n, "DequantizeLinear")) {
      return HoldsPast(graph_.inputs(n)[0]);
    }
    std::vector<int> from = MovedOperands(graph_.node(n));
    if (from.empty()) from = RequantizedOperands(graph_.node(n));
    return std::any_of(from.begin(), from.end(),
                       [&](int k) { return HoldsPast(graph_.inputs(n)[k]); });
  }

  const Graph& graph_;
  const ValueId past_;
  int read_ = 0;
  bool rounds_ = false;
  std::optional<UniformQuantizer> found_;
};

}  // namespace

double UniformQuantizer::Round(double x) const {
  const Range range = RangeOfCodes(codes).value_or(Range{});
  const auto low = static_cast<double>(range.low), high = static_cast<double>(range.high);
  const auto zero = static_cast<double>(zero_point);
  const double code = std::clamp(std::nearbyint(x / scale) + zero, low, high);
  return static_cast<double>(static_cast<float>((code - zero) * scale));
}

std::string UniformQuantizer::Text() const {
  return fmt::format("numbers of scale {:.6g}, zero point {} and {} codes", scale, zero_point,
                     ElementTypeName(codes));
}

std::string NumberSet::Text() const {
  return quantizer ? quantizer->Text() : ElementTypeName(type) + " numbers";
}

std::optional<QuantizedRounding> RoundingOf(const Graph& graph, ValueId v) {
  const auto q = QuantizerMaking(graph, v);
  if (!q) return std::nullopt;
  const NodeId back = MakerOf(graph, v);
  const NodeId to = MakerOf(graph, graph.inputs(back)[0]);
  if (to == kNoNode || !graph.Is(to, "QuantizeLinear")) return std::nullopt;
  if (ConstantsOf(graph, to) != q) return std::nullopt;
  return QuantizedRounding{*q, to, back, graph.inputs(to)[0]};
}

std::optional<UniformQuantizer> QuantizerMaking(const Graph& graph, ValueId v) {
  const NodeId back = MakerOf(graph, v);
  if (back == kNoNode || !graph.Is(back, "DequantizeLinear")) return std::nullopt;
  const auto q = ConstantsOf(graph, back);
  if (!q || !RangeOfCodes(q->codes)) return std::nullopt;
  const auto inputs = graph.inputs(back);
  if (inputs.size() > kZeroPoint && inputs[kZeroPoint] != kNoValue) return q;
  // Without a zero point, the node does not say what type the codes have.
  const NodeId to = MakerOf(graph, inputs[0]);
  const bool rounds =
      to != kNoNode && graph.Is(to, "QuantizeLinear") && ConstantsOf(graph, to) == q;
  return rounds ? q : std::nullopt;
}

std::vector<int> RequantizedOperands(const onnx::NodeProto& node) {
  constexpr int kFirstPart = 2, kStep = 3;  // behind the scale and the zero point of the result
  std::vector<int> parts;
  if (node.domain() != "com.microsoft" || node.output_size() != 1) return parts;
  if (node.op_type() == "QLinearConcat") {
    for (int k = kFirstPart; k + 2 < node.input_size(); k += kStep) parts.push_back(k);
  } else if (node.op_type() == "QLinearWhere" && node.input_size() == 9) {
    parts = {1, 4};
  }
  return parts;
}

std::optional<UniformQuantizer> QuantizerOfRows(const Graph& graph, ValueId past, ValueId present) {
  if (past == kNoValue || present == kNoValue || graph.type(past).elem_type != TensorProto::FLOAT) {
    return std::nullopt;
  }
  PartReader parts(graph, past);
  return parts.Read(present) ? parts.found() : std::nullopt;
}

}  // namespace kvlift
