#include "proof/lemmas/sink_key.h"

#include <algorithm>

#include "fmt/format.h"
#include "ir/tensor_data.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr double kLow = -1e4;

}  // namespace

bool IsRowOfSink(Expr key, Expr value) {
  return key != nullptr && value != nullptr && key->is_integer(0) && value->is_integer(0);
}

bool IsSinkInReach(sym::Forms& forms, Expr sink) {
  if (sink->kind() == Kind::kInteger) return static_cast<double>(sink->value()) > kLow;
  if (sink->kind() == Kind::kFloat) return sink->float_value() > kLow;
  if (sink->kind() != Kind::kLoad) return false;
  const onnx::TensorProto* constant = forms.graph().constant(sink->source());
  if (constant == nullptr) return false;
  const auto numbers = ReadFloats(*constant);
  return numbers.ok() &&
         std::all_of(numbers->begin(), numbers->end(), [](double number) { return number > kLow; });
}

Assumption SinkIsInReach(const std::string& attention) {
  return {AssumptionKind::kVisibleKey, attention,
          fmt::format("the sink of {} is more than -1e4 for each query head", attention),
          AssumptionSource::kHost};
}

}  // namespace kvlift
