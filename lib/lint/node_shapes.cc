#include "lint/node_shapes.h"

#include "fmt/format.h"

namespace kvlift {

ValueId NodeShapes::Value(size_t input) const {
  const auto inputs = graph_.inputs(node_);
  return input < inputs.size() ? inputs[input] : kNoValue;
}

bool NodeShapes::Has(size_t input) const { return Value(input) != kNoValue; }

const TensorType* NodeShapes::Type(size_t input) const {
  return Has(input) ? &graph_.type(Value(input)) : nullptr;
}

int NodeShapes::Rank(size_t input) const {
  const TensorType* type = Type(input);
  return type != nullptr && type->shape ? static_cast<int>(type->shape->size()) : -1;
}

std::optional<int64_t> NodeShapes::Extent(size_t input, int axis) const {
  if (axis < 0 || axis >= Rank(input)) return std::nullopt;
  return (*Type(input)->shape)[axis].value;
}

int32_t NodeShapes::ElemType(size_t input) const {
  const TensorType* type = Type(input);
  return type != nullptr ? type->elem_type : 0;
}

std::string NodeShapes::Show(size_t input) const {
  if (!Has(input)) return "(absent)";
  std::string dims;
  if (Rank(input) >= 0) {
    for (const Dim& dim : *Type(input)->shape) {
      if (!dims.empty()) dims += ", ";
      dims += dim.value ? fmt::format("{}", *dim.value) : dim.param.empty() ? "?" : dim.param;
    }
  }
  return fmt::format("{} [{}]", graph_.name(Value(input)), dims);
}

}  // namespace kvlift
