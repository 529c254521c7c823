// Operators that write into their own operands, as pure functions.
//
// KeyValueCache of OpenPPL (domains pmx and opmx, and theirs with .dynamic_batching behind) stores
// rows in its operands `cache` and `scale`: tensors of the host, in which the next layer and the
// next step find what the layer before left there. Here it has two outputs more, these tensors
// after the writing:
//
//   key, value, present_cache, present_scale =
//       KeyValueCache(current_key, current_value, start_pos, cache, scale)
//
// The form of dynamic_batching joins the tokens of all sequences on one axis, and operands say
// where each sequence begins: in the new rows, in all rows, and in the cache:
//
//   key, value, present_cache, present_scale =
//       KeyValueCache(current_key, current_value, seqstarts, kvstarts, cachestarts, start_pos,
//                     max_seqlen, max_kvlen, cache, scale)
//
// Each layer reads what the one in front of it gives, and the last present is an output of the
// graph, which the host feeds back. Models are turned into this form when they are loaded, and all
// that is done to them is done to it: then nothing is changed in place, and order, aliasing and
// equality mean what they mean elsewhere.
// Source: the operator pages KeyValueCache of openppl-public/ppl.pmx.
#pragma once

#include <string_view>

#include "onnx/onnx_pb.h"

namespace kvlift {

// In either form.
bool IsKeyValueCache(const onnx::NodeProto& node);
// Whether the operator of such a domain is one.
bool HasKeyValueCache(std::string_view domain);
// Whether the operator of such a domain has the form that joins sequences.
bool JoinsSequences(std::string_view domain);

// Where such a node has its operands and results.
struct KeyValueCacheSlots {
  // The same in both forms.
  enum Input { kKey, kValue };
  enum Output { kKeys, kValues, kPresentCache, kPresentScale };

  int start = 2, cache = 3, scale = 4;
  // Of the form that joins sequences; negative in the other.
  int seqstarts = -1, kvstarts = -1, cachestarts = -1;

  static KeyValueCacheSlots Of(const onnx::NodeProto& node);
  static KeyValueCacheSlots Joined() { return {5, 8, 9, 2, 3, 4}; }
  bool joins_sequences() const { return seqstarts >= 0; }

  // The operand that such a result is after the writing.
  int Written(int output) const { return output == kPresentCache ? cache : scale; }
};

// Gives a model that form if the tensors are inputs of the main graph that such operators alone
// look into: the graph then has an output "present_NAME" for each. Any other model, one that has
// the form already included, stays as it is.
void NamePresents(onnx::ModelProto* model);

}  // namespace kvlift
