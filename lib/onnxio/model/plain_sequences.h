// Replaces sequences by the tensors in them.
//
// Exporters put tensors into a sequence and take them out again at once: torch.hstack and
// torch.stack become SequenceConstruct, ConcatFromSequence, SequenceAt or SequenceMap. Where it is
// known which tensors a sequence holds, these nodes only say which tensor is read. Models lose them
// when they are loaded, and everything else works on tensors.
// Source: the texts of SequenceAt, SequenceConstruct, SequenceEmpty, SequenceErase, SequenceInsert,
// SequenceLength, SequenceMap and ConcatFromSequence of opset 17.
#pragma once

#include "onnx/onnx_pb.h"

namespace kvlift {

// Replaces the readers, in the main graph and in bodies, of sequences that SequenceConstruct or
// SequenceEmpty makes in the main graph: SequenceAt becomes Identity, ConcatFromSequence becomes
// Concat, SequenceLength becomes Constant, and SequenceMap becomes its body for each tensor.
// Sequences that nothing reads any more are removed. Where the tensors of a sequence, or a position
// in it, are not known, nodes stay as they are. The model need not be valid.
void WithoutSequences(onnx::ModelProto* model);

}  // namespace kvlift
