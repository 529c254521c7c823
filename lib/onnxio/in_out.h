// Operators that write into their own operands, as pure functions.
//
// KeyValueCache of OpenPPL (domains pmx and opmx) stores rows in its operands `cache` and `scale`:
// tensors of the host, in which the next layer and the next step find what the layer before left
// there. Here it has two outputs more, these tensors after the writing:
//
//   key, value, present_cache, present_scale =
//       KeyValueCache(current_key, current_value, start_pos, cache, scale)
//
// Each layer reads what the one in front of it gives, and the last present is an output of the
// graph, which the host feeds back. Models are turned into this form when they are loaded, and all
// that is done to them is done to it: then nothing is changed in place, and order, aliasing and
// equality mean what they mean elsewhere.
// Source: the operator pages KeyValueCache of openppl-public/ppl.pmx.
#pragma once

#include "onnx/onnx_pb.h"

namespace kvlift {

bool IsKeyValueCache(const onnx::NodeProto& node);

// Its operands and results in this form.
struct KeyValueCacheSlots {
  enum Input { kKey, kValue, kStart, kCache, kScale };
  enum Output { kKeys, kValues, kPresentCache, kPresentScale };
};

// Gives a model that form if the tensors are inputs of the main graph that such operators alone
// look into: the graph then has an output "present_NAME" for each. Any other model, one that has
// the form already included, stays as it is.
void NamePresents(onnx::ModelProto* model);

}  // namespace kvlift
