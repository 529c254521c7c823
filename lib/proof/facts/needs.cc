#include "proof/facts/needs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/operators/operator_traits.h"
#include "ir/tensor_data.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

class NeedReader {
 public:
  NeedReader(sym::Forms& forms, NodeId node)
      : forms_(forms), graph_(forms.graph()), pool_(forms.pool()), node_(node) {}

  std::vector<Need> Run() {
    for (ValueId result : graph_.outputs(node_)) {
      const sym::Form form = forms_.Of(result);
      if (!form.known_rank) continue;
      for (Expr extent : form.shape) {
        Add(pool_.Le(pool_.Integer(0), extent, Facts{}), Facts{}, "extent of a result");
      }
    }
    constexpr size_t kRangeStep = 2, kSliceSteps = 4;
    if (graph_.Is(node_, "Range")) NotZero(kRangeStep, "step of a Range");
    if (graph_.Is(node_, "Slice")) NotZero(kSliceSteps, "step of a Slice");
    if (graph_.Is(node_, "OneHot")) ReadDepth();
    const bool divides = graph_.Is(node_, "Div") || graph_.Is(node_, "Mod");
    if (divides && IsIntegerType(forms_.ElementType(Input(1)))) NotZero(1, "divisor of integers");
    if (graph_.Is(node_, "Split")) ReadParts();
    if (graph_.Is(node_, "TopK")) ReadCount();
    if (graph_.Is(node_, "Gemm")) ReadProduct();
    if (graph_.Is(node_, "Clip")) ReadBounds();
    if (graph_.Is(node_, "Reshape")) ReadRest();
    if (graph_.Is(node_, "Pad")) ReadPadding();
    if (graph_.Is(node_, "QuantizeLinear") || graph_.Is(node_, "DequantizeLinear")) ReadScales();
    return std::move(needs_);
  }

 private:
  void Add(Expr condition, Facts facts, const std::string& what) {
    if (condition->is_integer(1)) return;
    std::string text = fmt::format("{} ({})", sym::ToString(condition, &graph_), what);
    needs_.push_back({condition, std::move(facts), std::move(text)});
  }

  ValueId Input(size_t k) const {
    const auto inputs = graph_.inputs(node_);
    return k < inputs.size() ? inputs[k] : kNoValue;
  }

  // Requires a step or divisor to be positive if it is not shown to be other than 0, because most
  // are positive.
  void NotZero(size_t input, const std::string& what) {
    const ValueId value = Input(input);
    if (value == kNoValue) return;
    if (const onnx::TensorProto* constant = graph_.constant(value); constant != nullptr) {
      const auto integers = ReadInts(*constant);
      const bool zero = integers.ok() && std::count(integers->begin(), integers->end(), 0) > 0;
      if (zero) Add(pool_.False(), Facts{}, what);
      if (integers.ok()) return;
    }
    const sym::Form form = forms_.Of(value);
    if (!form.known_rank) return Add(pool_.False(), Facts{}, what);
    const Facts facts{form.shape};
    if (pool_.Eq(form.element, pool_.Integer(0), facts)->is_integer(0)) return;
    Add(pool_.Lt(pool_.Integer(0), form.element, facts), facts, what);
  }

  // Runtimes refuse a OneHot without a class.
  void ReadDepth() {
    const sym::Form depth = forms_.Of(Input(1));
    if (!depth.known_rank) return Add(pool_.False(), Facts{}, "depth of a OneHot");
    const Facts facts{depth.shape};
    Add(pool_.Lt(pool_.Integer(0), depth.element, facts), facts, "depth of a OneHot");
  }

  std::optional<Expr> AxisOf(const char* name, int64_t fallback) {
    const sym::Form form = forms_.Of(Input(0));
    if (!form.known_rank) return std::nullopt;
    const auto rank = static_cast<int64_t>(form.shape.size());
    int64_t axis = IntAttribute(graph_.node(node_), name, fallback);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return std::nullopt;
    return form.shape[static_cast<size_t>(axis)];
  }

  void ReadParts() {
    const auto extent = AxisOf("axis", 0);
    if (!extent) return;
    if (Input(1) == kNoValue) {
      const auto count = static_cast<int64_t>(graph_.outputs(node_).size());
      if (FindAttribute(graph_.node(node_), "num_outputs") != nullptr) {
        return Add(pool_.Le(pool_.Integer(count), *extent, Facts{}), Facts{}, "parts of an axis");
      }
      // Below opset 18 all parts are equal.
      const Expr rest = pool_.Mod(*extent, pool_.Integer(count), Facts{});
      return Add(pool_.Eq(rest, pool_.Integer(0), Facts{}), Facts{}, "equal parts of an axis");
    }
    const auto parts = forms_.Elements(Input(1));
    if (!parts) return Add(pool_.False(), Facts{}, "parts of an axis");
    Expr sum = pool_.Integer(0);
    for (Expr part : *parts) sum = pool_.Add(sum, part);
    Add(pool_.Eq(sum, *extent, Facts{}), Facts{}, "parts of an axis");
  }

  void ReadCount() {
    const auto extent = AxisOf("axis", -1);
    const auto count = forms_.Elements(Input(1));
    if (!extent || !count || count->size() != 1) {
      return Add(pool_.False(), Facts{}, "elements of a TopK");
    }
    Add(pool_.Le(count->front(), *extent, Facts{}), Facts{}, "elements of a TopK");
  }

  void ReadProduct() {
    const sym::Form a = forms_.Of(Input(0)), b = forms_.Of(Input(1));
    if (!a.known_rank || !b.known_rank || a.shape.size() != 2 || b.shape.size() != 2) return;
    const onnx::NodeProto& node = graph_.node(node_);
    const Expr x = a.shape[IntAttribute(node, "transA", 0) != 0 ? 0 : 1];
    const Expr y = b.shape[IntAttribute(node, "transB", 0) != 0 ? 1 : 0];
    Add(pool_.Eq(x, y, Facts{}), Facts{}, "inner axis of a Gemm");
    if (Input(2) == kNoValue) return;
    const sym::Form c = forms_.Of(Input(2)), result = forms_.Of(graph_.outputs(node_)[0]);
    const char* const what = "summand of a Gemm";
    if (!c.known_rank || !result.known_rank || c.shape.size() > result.shape.size()) {
      return Add(pool_.False(), Facts{}, what);
    }
    const size_t more = result.shape.size() - c.shape.size();
    for (size_t k = 0; k < c.shape.size(); ++k) {
      const Expr one = pool_.Eq(c.shape[k], pool_.Integer(1), Facts{});
      Add(pool_.Or(one, pool_.Eq(c.shape[k], result.shape[more + k], Facts{})), Facts{}, what);
    }
  }

  // The bounds of a Clip are scalars.
  void ReadBounds() {
    for (const size_t k : {1, 2}) {
      if (Input(k) == kNoValue) continue;
      const sym::Form bound = forms_.Of(Input(k));
      if (bound.known_rank && bound.shape.empty()) continue;
      const bool vector = bound.known_rank && bound.shape.size() == 1;
      Add(vector ? pool_.Eq(bound.shape[0], pool_.Integer(1), Facts{}) : pool_.False(), Facts{},
          "bound of a Clip");
    }
  }

  // An extent of -1 is what the others leave of the elements; none of them may be 0 then.
  void ReadRest() {
    const auto extents = forms_.Elements(Input(1));
    const sym::Form result = forms_.Of(graph_.outputs(node_)[0]);
    if (!extents || !result.known_rank || extents->size() != result.shape.size()) return;
    for (size_t rest = 0; rest < extents->size(); ++rest) {
      if (pool_.ProveNonNegative((*extents)[rest], Facts{})) continue;
      for (size_t k = 0; k < result.shape.size(); ++k) {
        if (k == rest) continue;
        Add(pool_.Le(pool_.Integer(1), result.shape[k], Facts{}), Facts{},
            "extent beside one of -1 of a Reshape");
      }
    }
  }

  // Padding by elements of the tensor itself needs some; by reflection, more than are added.
  void ReadPadding() {
    const std::string mode = StringAttribute(graph_.node(node_), "mode", "constant");
    if (mode == "constant") return;
    const char* const what = "padding by elements of the tensor";
    const auto pads = forms_.Elements(Input(1));
    const sym::Form data = forms_.Of(Input(0));
    if (!pads || !data.known_rank || Input(3) != kNoValue ||
        pads->size() != 2 * data.shape.size()) {
      return Add(pool_.False(), Facts{}, what);
    }
    for (size_t k = 0; k < data.shape.size(); ++k) {
      const Expr front = (*pads)[k], back = (*pads)[k + data.shape.size()];
      if (front->is_integer(0) && back->is_integer(0)) continue;
      for (const Expr pad : {front, back}) {
        Add(pool_.Le(pool_.Integer(0), pad, Facts{}), Facts{}, what);
        const Expr least = mode == "reflect" ? pool_.Add(pad, pool_.Integer(1)) : pool_.Integer(1);
        Add(pool_.Le(least, data.shape[k], Facts{}), Facts{}, what);
      }
    }
  }

  // A scale is one number, one for each index of an axis, or one for each block along it; zero
  // points have the shape of the scales.
  void ReadScales() {
    const char* const what = "scales of a quantised tensor";
    const sym::Form x = forms_.Of(Input(0)), scale = forms_.Of(Input(1));
    if (!x.known_rank || !scale.known_rank) return Add(pool_.False(), Facts{}, what);
    if (Input(2) != kNoValue) {
      const sym::Form zero = forms_.Of(Input(2));
      if (!zero.known_rank || zero.shape.size() != scale.shape.size()) {
        return Add(pool_.False(), Facts{}, what);
      }
      for (size_t k = 0; k < zero.shape.size(); ++k) {
        Add(pool_.Eq(zero.shape[k], scale.shape[k], Facts{}), Facts{}, what);
      }
    }
    const auto rank = static_cast<int64_t>(x.shape.size());
    int64_t axis = IntAttribute(graph_.node(node_), "axis", 1);
    if (axis < 0) axis += rank;
    const bool one = scale.shape.size() == 1 && scale.shape[0]->is_integer(1);
    if (scale.shape.empty() || one) return;
    if (axis < 0 || axis >= rank) return Add(pool_.False(), Facts{}, what);
    const Expr extent = x.shape[static_cast<size_t>(axis)];
    if (scale.shape.size() == 1) {
      return Add(pool_.Eq(scale.shape[0], extent, Facts{}), Facts{}, what);
    }
    const int64_t block = IntAttribute(graph_.node(node_), "block_size", 0);
    if (scale.shape.size() != x.shape.size() || block < 1) {
      return Add(pool_.False(), Facts{}, what);
    }
    for (size_t k = 0; k < scale.shape.size(); ++k) {
      if (static_cast<int64_t>(k) != axis) {
        Add(pool_.Eq(scale.shape[k], x.shape[k], Facts{}), Facts{}, what);
        continue;
      }
      const Expr room = pool_.Mul(pool_.Integer(block), scale.shape[k]);
      Add(pool_.Le(extent, room, Facts{}), Facts{}, what);
      Add(pool_.Lt(pool_.Sub(room, pool_.Integer(block)), extent, Facts{}), Facts{}, what);
    }
  }

  sym::Forms& forms_;
  const Graph& graph_;
  sym::Pool& pool_;
  NodeId node_;
  std::vector<Need> needs_;
};

}  // namespace

std::vector<Need> NeedsOf(sym::Forms& forms, NodeId node) { return NeedReader(forms, node).Run(); }

bool StatesAllNeeds(sym::Forms& forms, NodeId node) {
  static const auto& stated = *new absl::flat_hash_set<std::string>({"DequantizeLinear",
                                                                     "QuantizeLinear",
                                                                     "Concat",
                                                                     "Constant",
                                                                     "ConstantOfShape",
                                                                     "Einsum",
                                                                     "Expand",
                                                                     "EyeLike",
                                                                     "Flatten",
                                                                     "Gather",
                                                                     "GatherND",
                                                                     "Gemm",
                                                                     "Hardmax",
                                                                     "LogSoftmax",
                                                                     "LpNormalization",
                                                                     "MatMul",
                                                                     "NonZero",
                                                                     "OneHot",
                                                                     "Pad",
                                                                     "Range",
                                                                     "ReduceL1",
                                                                     "ReduceL2",
                                                                     "ReduceLogSum",
                                                                     "ReduceLogSumExp",
                                                                     "ReduceMax",
                                                                     "ReduceMean",
                                                                     "ReduceMin",
                                                                     "ReduceProd",
                                                                     "ReduceSum",
                                                                     "ReduceSumSquare",
                                                                     "Reshape",
                                                                     "ScatterElements",
                                                                     "ScatterND",
                                                                     "Shape",
                                                                     "Size",
                                                                     "Slice",
                                                                     "Softmax",
                                                                     "Split",
                                                                     "Squeeze",
                                                                     "TensorScatter",
                                                                     "Tile",
                                                                     "TopK",
                                                                     "Transpose",
                                                                     "Trilu",
                                                                     "Unsqueeze"});
  const Graph& graph = forms.graph();
  const onnx::NodeProto& proto = graph.node(node);
  if (!proto.domain().empty() && proto.domain() != "ai.onnx") return false;
  const std::string& op = proto.op_type();
  if (stated.contains(op)) return true;
  if (FindElementwise(proto) != nullptr) return op != "PRelu";
  const auto inputs = graph.inputs(node);
  if (op == "Dropout") return inputs.size() < 2;
  if (op != "CumSum" || !forms.Of(inputs[0]).known_rank) return false;
  const onnx::TensorProto* const constant = graph.constant(inputs[1]);
  const auto axis =
      constant == nullptr ? absl::StatusOr<std::vector<int64_t>>() : ReadInts(*constant);
  const auto rank = static_cast<int64_t>(forms.Of(inputs[0]).shape.size());
  return axis.ok() && axis->size() == 1 && axis->front() >= -rank && axis->front() < rank;
}

bool TellsExtents(const sym::Forms& forms, ValueId result, const sym::Form& form) {
  if (!form.known_rank) return false;
  for (size_t k = 0; k < form.shape.size(); ++k) {
    const Expr extent = form.shape[k];
    if (extent->kind() == sym::Kind::kDim &&
        extent->dim() == forms.OwnSymbol(result, static_cast<int>(k))) {
      return false;
    }
  }
  return true;
}

}  // namespace kvlift
