#include "reduce/shared_values.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "ir/tensor_data.h"
#include "proof/graphs/value_types.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

// Shapes are only propagated from this opset on.
constexpr int64_t kLowestOpset = 13;

std::vector<TensorType> TypesIn(const Graph& graph, const std::vector<ValueId>& values,
                                TypesFrom from) {
  if (from == TypesFrom::kForms && graph.opset() >= kLowestOpset) return TypesOf(graph, values);
  auto inferred = InferShapes(graph.model());
  const auto typed =
      inferred.ok() ? Graph::Build(std::make_shared<const onnx::ModelProto>(*std::move(inferred)))
                    : absl::StatusOr<Graph>(inferred.status());
  std::vector<TensorType> types;
  types.reserve(values.size());
  for (const ValueId v : values) {
    const ValueId w = typed.ok() ? typed->Find(graph.name(v)) : kNoValue;
    types.push_back(w == kNoValue ? graph.type(v) : typed->type(w));
  }
  return types;
}

// Returns the elements of a value of rank 0 or 1 if all of them are known; else nullopt.
std::optional<std::vector<int64_t>> ConstantElements(sym::Forms* forms, ValueId v) {
  const auto elements = forms->Elements(v);
  if (!elements) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const sym::Expr element : *elements) {
    if (element->kind() != sym::Kind::kInteger) return std::nullopt;
    numbers.push_back(element->value());
  }
  return numbers;
}

// Returns the shape of a value whose elements are known.
std::vector<int64_t> DimsOf(sym::Forms* forms, ValueId v) {
  std::vector<int64_t> dims;
  for (const sym::Expr extent : forms->Of(v).shape) dims.push_back(extent->value());
  return dims;
}

// Returns, by value, whether it depends on one of these inputs.
std::vector<bool> DependsOn(const Graph& graph, const std::vector<std::string>& inputs) {
  std::vector<bool> depends(static_cast<size_t>(graph.num_values()), false);
  for (const std::string& input : inputs) {
    if (const ValueId v = graph.Find(input); v != kNoValue) depends[v] = true;
  }
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    bool any = false;
    for (const ValueId v : graph.inputs(n)) any = any || (v != kNoValue && depends[v]);
    for (const ValueId v : graph.captures(n)) any = any || depends[v];
    for (const ValueId v : graph.outputs(n)) {
      if (v != kNoValue) depends[v] = any;
    }
  }
  return depends;
}

}  // namespace

bool IsKnown(const TensorType& type) {
  return type.elem_type != 0 && type.shape &&
         std::all_of(type.shape->begin(), type.shape->end(),
                     [](const Dim& dim) { return dim.known(); });
}

absl::StatusOr<std::unique_ptr<SubjectGraphs>> SubjectGraphs::Of(const Subject& subject,
                                                                 TypesFrom types,
                                                                 const SubjectGraphs* whole) {
  std::unique_ptr<SubjectGraphs> graphs(new SubjectGraphs(subject));
  KV_ASSIGN_OR_RETURN(graphs->before_, Graph::Build(subject.model.proto));
  if (subject.is_pair()) {
    KV_ASSIGN_OR_RETURN(graphs->after_, Graph::Build(subject.conversion->model.proto));
  }
  graphs->FindValues();
  graphs->FindTypes(types);
  if (types == TypesFrom::kForms) graphs->FindConstants();
  if (whole != nullptr) graphs->KeepTypes(*whole);
  graphs->FindEnds();
  return graphs;
}

void SubjectGraphs::FindValues() {
  for (NodeId n = 0; n < before_->num_nodes(); ++n) {
    for (const ValueId v : before_->outputs(n)) {
      if (v == kNoValue) continue;
      SharedValue value;
      value.name = before_->name(v);
      value.before = v;
      if (after_) {
        value.after = after_->Find(value.name);
        if (value.after == kNoValue || after_->producer(value.after) == kNoNode) continue;
      }
      by_name_[value.name] = values_.size();
      values_.push_back(std::move(value));
    }
  }
}

void SubjectGraphs::FindTypes(TypesFrom from) {
  std::vector<ValueId> theirs, mine;
  for (const SharedValue& value : values_) {
    theirs.push_back(value.before);
    mine.push_back(value.after);
  }
  const std::vector<TensorType> types = TypesIn(*before_, theirs, from);
  for (size_t k = 0; k < values_.size(); ++k) values_[k].type = types[k];
  if (!after_) return;
  const std::vector<TensorType> others = TypesIn(*after_, mine, from);
  for (size_t k = 0; k < values_.size(); ++k) {
    values_[k].same_type = IsKnown(types[k]) && types[k] == others[k];
  }
}

void SubjectGraphs::FindConstants() {
  if (before_->opset() < kLowestOpset || (after_ && after_->opset() < kLowestOpset)) return;
  sym::Forms before(*before_);
  std::optional<sym::Forms> after;
  if (after_) after.emplace(*after_);
  for (SharedValue& value : values_) {
    if (!IsIntegerType(value.type.elem_type)) continue;
    auto elements = ConstantElements(&before, value.before);
    if (!elements || (after && elements != ConstantElements(&*after, value.after))) continue;
    value.constant = MakeInt64Tensor(value.name, DimsOf(&before, value.before), *elements);
    if (value.type.elem_type != onnx::TensorProto::INT64) value.constant.reset();
  }
}

void SubjectGraphs::KeepTypes(const SubjectGraphs& whole) {
  for (SharedValue& value : values_) {
    const SharedValue* known = whole.Find(value.name);
    if (known == nullptr) continue;
    if (after_ ? known->same_type && !value.same_type : !IsKnown(value.type)) {
      value.type = known->type;
      value.same_type = known->same_type;
    }
    if (!value.constant) value.constant = known->constant;
  }
}

void SubjectGraphs::FindEnds() {
  if (!after_) {
    for (SharedValue& value : values_) {
      value.may_be_input = value.may_be_output = value.type.elem_type != 0 && value.type.shape;
    }
    return;
  }
  const Manifest& relation = subject_.conversion->relation;
  std::vector<std::string> lengths_before, lengths_after;
  for (const ManifestCache& cache : relation.caches) {
    lengths_before.push_back(cache.source.input);
    lengths_after.push_back(cache.input);
  }
  for (const ManifestInput& input : relation.inputs) {
    if (AsControl(input) != nullptr) lengths_after.push_back(input.name);
  }
  const std::vector<bool> of_caches = DependsOn(*before_, lengths_before);
  const std::vector<bool> of_controls = DependsOn(*after_, lengths_after);
  for (SharedValue& value : values_) {
    const bool real = IsFloatType(value.type.elem_type);
    const bool counts = of_caches[value.before] || of_controls[value.after];
    value.may_be_output = value.same_type && real;
    value.may_be_input = value.same_type && (real || !counts || value.constant);
  }
}

const SharedValue* SubjectGraphs::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &values_[found->second];
}

}  // namespace kvlift
