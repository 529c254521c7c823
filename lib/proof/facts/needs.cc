#include "proof/facts/needs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "ir/tensor_data.h"
#include "ir/types.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

class Reader {
 public:
  Reader(sym::Forms& forms, NodeId node)
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
    const bool divides = graph_.Is(node_, "Div") || graph_.Is(node_, "Mod");
    if (divides && IsIntegerType(forms_.ElementType(Input(1)))) NotZero(1, "divisor of integers");
    if (graph_.Is(node_, "Split")) ReadParts();
    if (graph_.Is(node_, "TopK")) ReadCount();
    if (graph_.Is(node_, "Gemm")) ReadProduct();
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
    if (!extent || Input(1) == kNoValue) return;
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
  }

  sym::Forms& forms_;
  const Graph& graph_;
  sym::Pool& pool_;
  NodeId node_;
  std::vector<Need> needs_;
};

}  // namespace

std::vector<Need> NeedsOf(sym::Forms& forms, NodeId node) { return Reader(forms, node).Run(); }

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
