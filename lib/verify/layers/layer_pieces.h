// Cuts a source and its conversion (cuts.h) into pieces, each a pair of models of its own:
//
//   front -> h0 -> layer 0 -> h1 -> layer 1 -> h2 -> ... -> rest
//
// The hidden states that enter a piece are graph inputs of its models; what a piece needs of the
// inputs of the whole model (masks, positions, RoPE tables) it computes again. If both models of
// each piece are equal for all hidden states, the whole models are equal, by induction from the
// front. Pieces that differ in names and in the numbers of their weights only form a class.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "onnxio/model/model.h"

namespace kvlift {

struct ModelPiece {
  std::string name;     // "layer 3", "layers 3 to 4", "front", "rest"
  Model before, after;  // they share the weights of the whole models and keep them alive
  Manifest relation;    // relates the caches, inputs and outputs of this piece
  std::vector<std::string> entering;  // names of the hidden states that enter, in both models
};

struct PieceClass {
  ModelPiece piece;                 // the first piece of the class
  std::vector<std::string> others;  // names of the other pieces of the class
  // Both models have the same nodes and weights here, so nothing has to be run. Only computed for
  // pieces without a cache.
  bool same_nodes = false;
};

// Returns the classes, in the order of their first pieces. theirs, mine: the graphs of `before` and
// of `after`. FailedPrecondition says why the models cannot be cut: no cut is found, two pieces
// read one cache, or a piece does not relate to its counterpart (an input that only one of the two
// reads). Other errors are those of Graph::Build.
absl::StatusOr<std::vector<PieceClass>> CutIntoPieces(const Model& before, const Graph& theirs,
                                                      const Model& after, const Graph& mine,
                                                      const Manifest& relation);

}  // namespace kvlift
