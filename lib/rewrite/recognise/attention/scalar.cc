#include "rewrite/recognise/attention/scalar.h"

#include <cmath>

#include "ir/tensor_data.h"
#include "ir/types.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr int kMaxDepth = 32;
// int32 and int64 hold every integer below this magnitude.
constexpr double kLargestInteger = 2147483648.0;

// Rounds a computed value to its element type. Returns nullopt for types that are not evaluated,
// and for integer types if the value is not an integer or is too large.
std::optional<double> Rounded(double value, int32_t elem_type) {
  if (elem_type == onnx::TensorProto::DOUBLE) return value;
  if (IsFloatType(elem_type) && ElementBits(elem_type) > 8) {
    return static_cast<double>(static_cast<float>(value));
  }
  const bool whole = elem_type == onnx::TensorProto::INT64 || elem_type == onnx::TensorProto::INT32;
  if (!whole || value != std::trunc(value) || std::abs(value) >= kLargestInteger) {
    return std::nullopt;
  }
  return value;
}

// Returns the result of a Cast to `elem_type`; casts to integers truncate.
std::optional<double> CastOf(double value, int32_t elem_type) {
  return IsFloatType(elem_type) ? Rounded(value, elem_type) : Rounded(std::trunc(value), elem_type);
}

bool OneElement(const sym::Form& form) {
  if (!form.known_rank) return false;
  for (Expr dim : form.shape) {
    if (!dim->is_integer(1)) return false;
  }
  return true;
}

std::optional<double> Evaluate(sym::Forms& forms, ValueId v, int depth);

std::optional<double> FromProducer(sym::Forms& forms, ValueId v, int depth) {
  const Graph& graph = forms.graph();
  if (const onnx::TensorProto* constant = graph.constant(v); constant != nullptr) {
    const auto values = ReadFloats(*constant);
    if (values.ok() && values->size() == 1) return (*values)[0];
    return std::nullopt;
  }
  const NodeId n = graph.producer(v);
  if (n == kNoNode || graph.inputs(n).empty()) return std::nullopt;
  const auto a = Evaluate(forms, graph.inputs(n)[0], depth + 1);
  if (!a) return std::nullopt;
  const auto is = [&](std::string_view op) { return graph.Is(n, op); };
  if (is("Cast") || is("CastLike")) return CastOf(*a, forms.ElementType(v));
  if (sym::PassedThrough(forms, n)) return a;
  if (is("Sqrt")) return std::sqrt(*a);
  if (is("Reciprocal")) return 1.0 / *a;
  if (is("Neg")) return -*a;
  if (is("Exp")) return std::exp(*a);
  if (graph.inputs(n).size() != 2) return std::nullopt;
  const auto b = Evaluate(forms, graph.inputs(n)[1], depth + 1);
  if (!b) return std::nullopt;
  if (is("Add")) return *a + *b;
  if (is("Sub")) return *a - *b;
  if (is("Mul")) return *a * *b;
  if (is("Div")) return *a / *b;
  if (is("Pow")) return std::pow(*a, *b);
  return std::nullopt;
}

std::optional<double> Evaluate(sym::Forms& forms, ValueId v, int depth) {
  if (v == kNoValue || depth > kMaxDepth) return std::nullopt;
  const sym::Form& form = forms.Of(v);
  if (!OneElement(form)) return std::nullopt;
  if (form.element->kind() == Kind::kInteger) return static_cast<double>(form.element->value());
  if (form.element->kind() == Kind::kFloat) return form.element->float_value();
  // The form looks through data movement to the computed scalar.
  ValueId source = v;
  if (!form.opaque && form.element->kind() == Kind::kLoad) source = form.element->source();
  const auto value = FromProducer(forms, source, depth);
  if (!value) return std::nullopt;
  return Rounded(*value, forms.ElementType(source));
}

}  // namespace

std::optional<double> ScalarConstant(sym::Forms& forms, ValueId v) { return Evaluate(forms, v, 0); }

}  // namespace kvlift
