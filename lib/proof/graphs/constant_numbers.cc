#include "proof/graphs/constant_numbers.h"

#include <cmath>
#include <vector>

#include "ir/tensor_data.h"
#include "ir/types.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Form;
using sym::Kind;

constexpr int kDeepestNumber = 64;
constexpr double kSmallNumber = 100;  // representable in all integer types of at least 8 bits

std::optional<double> Computed(sym::Forms& forms, NodeId n, int depth);

// Rounds a number to a float type; nullopt for integer types, whose arithmetic differs.
std::optional<double> Rounded(int32_t type, double x) {
  const bool known = type == TensorProto::FLOAT || type == TensorProto::DOUBLE ||
                     type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16;
  return known ? std::optional(sym::RoundTo(type, x)) : std::nullopt;
}

// Returns the number after a cast.
std::optional<double> PassedNumber(const sym::PassedOperand& passed, int32_t to, double x) {
  if (passed.fidelity == sym::Fidelity::kExact) return x;
  if (IsFloatType(to)) return Rounded(to, x);
  const bool whole = IsIntegerType(to) && ElementBits(to) >= 8;
  return whole && x >= 0 && x < kSmallNumber ? std::optional(std::trunc(x)) : std::nullopt;
}

std::optional<double> Scalar(sym::Forms& forms, ValueId v, int depth) {
  if (const TensorProto* tensor = forms.graph().constant(v); tensor != nullptr) {
    const auto size = NumElements(*tensor);
    if (!size.ok() || *size != 1) return std::nullopt;
    const auto values = ReadFloats(*tensor);
    if (values.ok()) return values->front();
  }
  const sym::Form form = forms.Of(v);
  if (!form.known_rank) return std::nullopt;
  for (Expr extent : form.shape) {
    if (!extent->is_integer(1)) return std::nullopt;
  }
  if (form.element->kind() == Kind::kFloat) return form.element->float_value();
  if (form.element->kind() == Kind::kInteger) return static_cast<double>(form.element->value());
  const NodeId n = forms.graph().producer(v);
  return n == kNoNode || depth > kDeepestNumber ? std::nullopt : Computed(forms, n, depth + 1);
}

std::optional<double> Computed(sym::Forms& forms, NodeId n, int depth) {
  const Graph& graph = forms.graph();
  const int32_t to = forms.ElementType(graph.outputs(n)[0]);
  if (const auto passed = sym::PassedThrough(forms, n)) {
    const auto number = Scalar(forms, graph.inputs(n)[passed->input], depth);
    return number ? PassedNumber(*passed, to, *number) : std::nullopt;
  }
  std::vector<double> x;
  for (ValueId input : graph.inputs(n)) {
    const auto number = input == kNoValue ? std::nullopt : Scalar(forms, input, depth);
    if (!number || x.size() > 1) return std::nullopt;
    x.push_back(*number);
  }
  if (x.empty()) return std::nullopt;
  const auto is = [&](const char* op) { return graph.Is(n, op); };
  if (x.size() == 1) {
    if (is("Sqrt")) return Rounded(to, std::sqrt(x[0]));
    if (is("Reciprocal")) return Rounded(to, 1 / x[0]);
    return std::nullopt;
  }
  if (is("Mul")) return Rounded(to, x[0] * x[1]);
  if (is("Div")) return Rounded(to, x[0] / x[1]);
  if (is("Add")) return Rounded(to, x[0] + x[1]);
  if (is("Pow")) return Rounded(to, std::pow(x[0], x[1]));
  return std::nullopt;
}

}  // namespace

std::optional<double> NumberOf(sym::Forms& forms, ValueId v) { return Scalar(forms, v, 0); }

}  // namespace kvlift
