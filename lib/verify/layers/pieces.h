// The pieces of a source and its conversion between cuts, each a pair of models of its own:
//
//   front -> h0 -> layer 0 -> h1 -> layer 1 -> h2 -> ... -> rest
//
// A piece takes the hidden states that enter it as graph inputs, for any values, and computes anew
// what it needs of the model's own inputs: masks, positions, rotations. If each piece is the same
// in both models, so are the models: equal values leave where equal ones enter, from the front on.
//
// Pieces that differ in names and in the numbers of their weights alone are of one class.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "onnxio/model.h"

namespace kvlift {

struct ModelPiece {
  std::string name;                   // "layer 3", "layers 3 to 4", "front", "rest"
  Model before, after;                // they share the weights of the whole models, and keep them
  Manifest relation;                  // of this piece's caches, inputs and outputs
  std::vector<std::string> entering;  // names of the hidden states, in both models
};

struct PieceClass {
  ModelPiece piece;                 // the first of the class
  std::vector<std::string> others;  // names of the others
  // Both models have the same operators here, on the same weights: there is nothing to be run.
  bool same_nodes = false;
};

// FailedPrecondition says why the models cannot be cut: no cut is found, or what a piece needs is
// not computed within it.
absl::StatusOr<std::vector<PieceClass>> CutIntoPieces(const Model& before, const Model& after,
                                                      const Manifest& relation);

}  // namespace kvlift
