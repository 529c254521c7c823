#include "onnxio/operators.h"

#include <cstdint>
#include <utility>

#include "onnx/defs/schema.h"
#include "onnx/defs/shape_inference.h"
#include "onnxio/in_out.h"

namespace kvlift {
namespace {

using onnx::AttributeProto;
using onnx::OpSchema;
using Slots = KeyValueCacheSlots;

// [B, S, Nk, D] -> [B, T, Nk * num_repeat, D]; tensors that are written keep their types.
void InferKeyValueCache(onnx::InferenceContext& context) {
  const int64_t repeat = onnx::getAttribute(context, "num_repeat", int64_t{1});
  for (const auto& [from, to] :
       {std::pair(Slots::kKey, Slots::kKeys), std::pair(Slots::kValue, Slots::kValues)}) {
    onnx::propagateElemTypeFromInputToOutput(context, from, to);
    if (!onnx::hasInputShape(context, from)) continue;
    const onnx::TensorShapeProto& rows = onnx::getInputShape(context, from);
    if (rows.dim_size() != 4) fail_shape_inference("KeyValueCache: rows must have 4 dimensions");
    onnx::TensorShapeProto all = rows;
    all.mutable_dim(1)->Clear();
    auto* heads = all.mutable_dim(2);
    if (heads->has_dim_value()) {
      if (repeat < 1 || heads->dim_value() > INT64_MAX / repeat) {
        fail_shape_inference("KeyValueCache: num_repeat is out of range");
      }
      heads->set_dim_value(heads->dim_value() * repeat);
    } else if (repeat != 1) {
      heads->Clear();
    }
    *onnx::getOutputShape(context, to) = std::move(all);
  }
  for (const auto& [from, to] : {std::pair(Slots::kCache, Slots::kPresentCache),
                                 std::pair(Slots::kScale, Slots::kPresentScale)}) {
    if (context.getNumOutputs() <= static_cast<size_t>(to)) continue;
    if (context.getNumInputs() <= static_cast<size_t>(from)) continue;
    if (context.getInputType(from) == nullptr) continue;
    onnx::propagateElemTypeFromInputToOutput(context, from, to);
    if (onnx::hasInputShape(context, from)) {
      onnx::propagateShapeFromInputToOutput(context, from, to);
    }
  }
}

OpSchema KeyValueCache(const char* domain) {
  OpSchema schema("KeyValueCache", __FILE__, __LINE__);
  const auto number = [&](const char* name, int64_t value, const char* text) {
    schema.Attr(name, text, AttributeProto::INT, value);
  };
  schema.SetDomain(domain).SinceVersion(1);
  number("num_layer", 1, "Layers that share the tensors.");
  number("layer_idx", 0, "The layer of this node.");
  number("quant_bit", 0, "0: rows as they are; 8: int8 with scales.");
  number("quant_group", 8, "Elements that share a scale.");
  number("num_repeat", 1, "Times that each head stands in the results.");
  number("cache_layout", 0, "0: (MaxB,L,2,M,Nk,D); 1: (L,MaxB,2,Nk,M,D).");
  schema.Input(Slots::kKey, "current_key", "[B, S, Nk, D]", "T1")
      .Input(Slots::kValue, "current_value", "[B, S, Nk, D]", "T1")
      .Input(Slots::kStart, "start_pos", "One number.", "I")
      .Input(Slots::kCache, "cache", "As cache_layout says; written.", "T2")
      .Input(Slots::kScale, "scale", "D / quant_group last; written.", "T3", OpSchema::Optional)
      .Output(Slots::kKeys, "key", "[B, T, Nk * num_repeat, D]", "T1")
      .Output(Slots::kValues, "value", "[B, T, Nk * num_repeat, D]", "T1")
      .Output(Slots::kPresentCache, "present_cache", "The cache, written.", "T2",
              OpSchema::Optional)
      .Output(Slots::kPresentScale, "present_scale", "The scales, written.", "T3",
              OpSchema::Optional)
      .TypeConstraint("T1", {"tensor(float)", "tensor(float16)", "tensor(int8)"}, "Of rows.")
      .TypeConstraint("T2", {"tensor(float)", "tensor(float16)", "tensor(int8)", "tensor(int4)"},
                      "Of what is kept.")
      .TypeConstraint("T3", {"tensor(float)", "tensor(float16)"}, "Of scales.")
      .TypeConstraint("I", {"tensor(int64)"}, "Of positions.")
      .TypeAndShapeInferenceFunction(InferKeyValueCache);
  return schema;
}

bool Register() {
  for (const char* domain : {"pmx", "opmx"}) {
    onnx::OpSchemaRegistry::DomainToVersionRange::Instance().AddDomainToVersion(domain, 1, 1);
    onnx::RegisterSchema(KeyValueCache(domain));
  }
  return true;
}

}  // namespace

void RegisterOperators() { [[maybe_unused]] static const bool done = Register(); }

}  // namespace kvlift
