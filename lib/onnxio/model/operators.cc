#include "onnxio/model/operators.h"

#include <cstdint>
#include <string>
#include <utility>

#include "onnx/defs/schema.h"
#include "onnx/defs/shape_inference.h"
#include "onnxio/model/functional_form.h"

namespace kvlift {
namespace {

using onnx::AttributeProto;
using onnx::OpSchema;
using Slots = KeyValueCacheSlots;

// Shape inference of both forms: rows [.., Nk, D] become [.., Nk * num_repeat, D] with another
// number of tokens; tensors that are written keep type and shape.
template <bool kJoins>
void InferKeyValueCache(onnx::InferenceContext& context) {
  constexpr int kRank = kJoins ? 3 : 4, kTokens = kRank - 3, kHeads = kRank - 2;
  const Slots slots = kJoins ? Slots::Joined() : Slots();
  const int64_t repeat = onnx::getAttribute(context, "num_repeat", int64_t{1});
  for (const auto& [from, to] :
       {std::pair(Slots::kKey, Slots::kKeys), std::pair(Slots::kValue, Slots::kValues)}) {
    onnx::propagateElemTypeFromInputToOutput(context, from, to);
    if (!onnx::hasInputShape(context, from)) continue;
    const onnx::TensorShapeProto& rows = onnx::getInputShape(context, from);
    if (rows.dim_size() != kRank) {
      fail_shape_inference("KeyValueCache: rows must have ", kRank, " dimensions");
    }
    onnx::TensorShapeProto all = rows;
    all.mutable_dim(kTokens)->Clear();
    auto* heads = all.mutable_dim(kHeads);
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
  for (const int to : {Slots::kPresentCache, Slots::kPresentScale}) {
    const int from = slots.Written(to);
    if (context.getNumOutputs() <= static_cast<size_t>(to)) continue;
    if (context.getNumInputs() <= static_cast<size_t>(from)) continue;
    if (context.getInputType(from) == nullptr) continue;
    onnx::propagateElemTypeFromInputToOutput(context, from, to);
    if (onnx::hasInputShape(context, from)) {
      onnx::propagateShapeFromInputToOutput(context, from, to);
    }
  }
}

OpSchema KeyValueCache(const std::string& domain) {
  const bool joins = JoinsSequences(domain);
  const Slots slots = joins ? Slots::Joined() : Slots();
  const char* const rows = joins ? "[sum of S, Nk, D]" : "[B, S, Nk, D]";
  const char* const all = joins ? "[sum of T, Nk * num_repeat, D]" : "[B, T, Nk * num_repeat, D]";
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
  number("cache_layout", 0,
         joins ? "0: (M,L,2,Nk,D); 1: (L,M,2,Nk,D); 2: (L,2,M,Nk,D); 3: (L,2,Nk,M,D)."
               : "0: (MaxB,L,2,M,Nk,D); 1: (L,MaxB,2,Nk,M,D).");
  schema.Input(Slots::kKey, "current_key", rows, "T1")
      .Input(Slots::kValue, "current_value", rows, "T1")
      .Input(slots.start, "start_pos", joins ? "[B]" : "One number.", "I")
      .Input(slots.cache, "cache", "As cache_layout says; written.", "T2")
      .Input(slots.scale, "scale", "D / quant_group last; written.", "T3", OpSchema::Optional)
      .Output(Slots::kKeys, "key", all, "T1")
      .Output(Slots::kValues, "value", all, "T1")
      .Output(Slots::kPresentCache, "present_cache", "The cache, written.", "T2",
              OpSchema::Optional)
      .Output(Slots::kPresentScale, "present_scale", "The scales, written.", "T3",
              OpSchema::Optional)
      .TypeConstraint("T1", {"tensor(float)", "tensor(float16)", "tensor(int8)"}, "Of rows.")
      .TypeConstraint("T2", {"tensor(float)", "tensor(float16)", "tensor(int8)", "tensor(int4)"},
                      "Of what is kept.")
      .TypeConstraint("T3", {"tensor(float)", "tensor(float16)"}, "Of scales.")
      .TypeConstraint("I", {"tensor(int64)"}, "Of positions.");
  if (!joins) return std::move(schema.TypeAndShapeInferenceFunction(InferKeyValueCache<false>));
  number("cache_mode", 0, "0: a sequence is in one piece; 1: in pages.");
  number("page_size", 128, "Slots of a page.");
  schema.Input(slots.seqstarts, "seqstarts", "[B + 1]: where sequences begin in new rows.", "I")
      .Input(slots.kvstarts, "kvstarts", "[B + 1]: where they begin in all rows.", "I")
      .Input(slots.cachestarts, "cachestarts", "[B] or [B, pages]: where they begin in slots.", "I")
      .Input(slots.start + 1, "max_seqlen", "The longest S.", "I")
      .Input(slots.start + 2, "max_kvlen", "The longest T.", "I");
  return std::move(schema.TypeAndShapeInferenceFunction(InferKeyValueCache<true>));
}

bool Register() {
  for (const char* domain : {"pmx", "opmx", "pmx.dynamic_batching", "opmx.dynamic_batching"}) {
    onnx::OpSchemaRegistry::DomainToVersionRange::Instance().AddDomainToVersion(domain, 1, 1);
    onnx::RegisterSchema(KeyValueCache(domain));
  }
  return true;
}

}  // namespace

void RegisterOperators() { [[maybe_unused]] static const bool done = Register(); }

}  // namespace kvlift
