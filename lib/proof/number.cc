#include "proof/number.h"

#include <cmath>
#include <vector>

#include "ir/tensor_data.h"
#include "ir/types.h"
#include "sym/keeps_value.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Form;
using sym::Kind;

constexpr int kMostSteps = 64;
constexpr double kSmall = 100;  // within all integer types of 8 bits and more

std::optional<double> Computed(sym::Forms& forms, NodeId n, int depth);

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
  return n == kNoNode || depth > kMostSteps ? std::nullopt : Computed(forms, n, depth + 1);
}

std::optional<double> Computed(sym::Forms& forms, NodeId n, int depth) {
  std::vector<double> x;
  for (ValueId input : forms.graph().inputs(n)) {
    const auto number = input == kNoValue ? std::nullopt : Scalar(forms, input, depth);
    if (!number || x.size() > 1) return std::nullopt;
    x.push_back(*number);
  }
  if (x.empty()) return std::nullopt;
  const auto is = [&](const char* op) { return forms.graph().Is(n, op); };
  if (is("Sqrt")) return std::sqrt(x[0]);
  if (is("Reciprocal")) return 1 / x[0];
  const auto passed = sym::PassedThrough(forms, n);
  if (passed) {
    if (passed->fidelity == sym::Fidelity::kExact) return x[0];
    // A number that has few enough bits is not rounded; others are.
    const int32_t to = forms.ElementType(forms.graph().outputs(n)[0]);
    if (to == TensorProto::FLOAT) return static_cast<double>(static_cast<float>(x[0]));
    const bool whole =
        passed->fidelity == sym::Fidelity::kNone && IsIntegerType(to) && ElementBits(to) >= 8;
    if (whole && x[0] >= 0 && x[0] < kSmall) return std::trunc(x[0]);
    return std::nullopt;
  }
  if (!IsFloatType(forms.ElementType(forms.graph().outputs(n)[0]))) return std::nullopt;
  if (x.size() != 2) return std::nullopt;
  if (is("Mul")) return x[0] * x[1];
  if (is("Div")) return x[0] / x[1];
  if (is("Add")) return x[0] + x[1];
  if (is("Pow")) return std::pow(x[0], x[1]);
  return std::nullopt;
}

}  // namespace

std::optional<double> NumberOf(sym::Forms& forms, ValueId v) { return Scalar(forms, v, 0); }

}  // namespace kvlift
