// Changes of a model that do not change what it computes. Same generator state, same result.
#pragma once

#include <random>

#include "onnx/onnx_pb.h"

namespace kvlift {

using Disguise = void (*)(onnx::ModelProto*, std::mt19937&);

// Identity behind a fifth of all values, read by some or all of their readers.
void InsertIdentities(onnx::ModelProto* model, std::mt19937& rng);
// New names for all values, nodes and dimension symbols.
void RenameEverything(onnx::ModelProto* model, std::mt19937& rng);
// A random topological order of the nodes; declarations of inner values are dropped.
void ReorderNodes(onnx::ModelProto* model, std::mt19937& rng);
// Half of the initialisers become Constant nodes.
void MoveInitializersToConstants(onnx::ModelProto* model, std::mt19937& rng);
// Nodes whose results nobody reads, behind random values.
void AddUnrelatedConsumers(onnx::ModelProto* model, std::mt19937& rng);
// Half of the Transposes are made in two steps, half of the Casts twice.
void DoubleMovesAndCasts(onnx::ModelProto* model, std::mt19937& rng);
// All of them.
void DisguiseFully(onnx::ModelProto* model, std::mt19937& rng);

}  // namespace kvlift
