// Changes of a model that do not change what it computes. The same generator state gives the same
// result.
#pragma once

#include <random>

#include "onnx/onnx_pb.h"

namespace kvlift {

using Disguise = void (*)(onnx::ModelProto*, std::mt19937&);

// Inserts an Identity behind a fifth of all values, for some or all of their readers.
void InsertIdentities(onnx::ModelProto* model, std::mt19937& rng);
// Renames all values, nodes and dimension symbols.
void RenameEverything(onnx::ModelProto* model, std::mt19937& rng);
// Shuffles the nodes in a random topological order, and drops the value_info.
void ReorderNodes(onnx::ModelProto* model, std::mt19937& rng);
// Turns half of the initializers into Constant nodes.
void MoveInitializersToConstants(onnx::ModelProto* model, std::mt19937& rng);
// Adds nodes behind random values; nothing reads their results.
void AddUnrelatedConsumers(onnx::ModelProto* model, std::mt19937& rng);
// Splits half of the Transposes in two, and doubles half of the Casts.
void DoubleMovesAndCasts(onnx::ModelProto* model, std::mt19937& rng);
// Makes all of these changes.
void DisguiseFully(onnx::ModelProto* model, std::mt19937& rng);

}  // namespace kvlift
