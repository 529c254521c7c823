#include "proof/lemmas/sink_key.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "ir/tensor_data.h"
#include "proof/lemmas/finite_minimum.h"

namespace kvlift {

using sym::Expr;
using sym::Kind;

bool IsRowOfSink(Expr key, Expr value) {
  return key != nullptr && value != nullptr && key->is_integer(0) && value->is_integer(0);
}

bool IsSinkInReach(sym::Forms& forms, Expr sink) {
  const auto in_reach = [](double number) { return !std::isnan(number) && !HidesKey(number); };
  if (sink->kind() == Kind::kInteger) return in_reach(static_cast<double>(sink->value()));
  if (sink->kind() == Kind::kFloat) return in_reach(sink->float_value());
  if (sink->kind() != Kind::kLoad) return false;
  const onnx::TensorProto* constant = forms.graph().constant(sink->source());
  if (constant == nullptr) return false;
  const auto numbers = ReadFloats(*constant);
  return numbers.ok() && std::all_of(numbers->begin(), numbers->end(), in_reach);
}

Assumption SinkIsInReach(const std::string& attention) {
  return {AssumptionKind::kVisibleKey, attention,
          fmt::format("the sink of {} is more than -1e4 for each query head", attention),
          AssumptionSource::kHost};
}

}  // namespace kvlift
