// Turns operators that write into their own operands into functions of their inputs.
//
// KeyValueCache of OpenPPL (domains pmx and opmx, also with the suffix .dynamic_batching) stores
// rows in its operands `cache` and `scale`. They are tensors of the host, shared by all layers and
// steps. In the functional form the operator has two more outputs, these tensors after the write:
//
//   key, value, present_cache, present_scale =
//       KeyValueCache(current_key, current_value, start_pos, cache, scale)
//
// In the dynamic_batching domains the tokens of all sequences are joined on one axis, and operands
// say where each sequence begins: in the new rows, in all rows, and in the cache:
//
//   key, value, present_cache, present_scale =
//       KeyValueCache(current_key, current_value, seqstarts, kvstarts, cachestarts, start_pos,
//                     max_seqlen, max_kvlen, cache, scale)
//
// Each layer reads the present of the layer before it, and the last present is a graph output that
// the host feeds back as the next past. Models get this form when they are loaded, and everything
// else works on it: no operator changes a tensor in place.
// Source: the operator pages KeyValueCache of openppl-public/ppl.pmx.
#pragma once

#include <string_view>

#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns true if the node is a KeyValueCache, in either form.
bool IsKeyValueCache(const onnx::NodeProto& node);
// Returns true if KeyValueCache of this domain is OpenPPL's operator.
bool HasKeyValueCache(std::string_view domain);
// Returns true if KeyValueCache of this domain joins all sequences on one axis.
bool JoinsSequences(std::string_view domain);

// The positions of a KeyValueCache node's operands and results.
struct KeyValueCacheSlots {
  // These are the same in both forms.
  enum Input { kKey, kValue };
  enum Output { kKeys, kValues, kPresentCache, kPresentScale };

  int start = 2, cache = 3, scale = 4;
  // Only in domains that join sequences; -1 in the others.
  int seqstarts = -1, kvstarts = -1, cachestarts = -1;

  static KeyValueCacheSlots Of(const onnx::NodeProto& node);
  static KeyValueCacheSlots Joined() { return {5, 8, 9, 2, 3, 4}; }
  bool joins_sequences() const { return seqstarts >= 0; }

  // The operand whose value after the write is `output` (kPresentCache or kPresentScale).
  int Written(int output) const { return output == kPresentCache ? cache : scale; }
};

// Gives a model the functional form, with a graph output "present_NAME" for each tensor. It applies
// if all such tensors are inputs of the main graph that only KeyValueCache nodes (and Shape) read.
// Any other model, and one in this form already, is not changed.
void NamePresents(onnx::ModelProto* model);

}  // namespace kvlift
