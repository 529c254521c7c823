// Layers that are the same are proved once. Two models become smaller ones that keep one of each
// run of layers:
//
//   front -> any values -> layer 0 -> any values -> rest
//
// What is proved of layer 0 for any values that enter it holds for every layer that is the same but
// for names (proof/layers.h): by induction, if equal values leave where equal ones enter, and of
// the same shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"
#include "proof/layer_names.h"
#include "proof/proof.h"
#include "proof/seams.h"

namespace kvlift {

struct FoldedPair {
  onnx::ModelProto before, after;
  Manifest relation;
  std::vector<Seam> seams;  // the proof has to show them
  // What facts of layer 0 are about, in the layers that left, from one to the next.
  absl::flat_hash_map<std::string, std::vector<std::string>> copies;
  // Where in the conversion what facts are about is made.
  absl::flat_hash_map<std::string, int> places;
  LayerNames names;  // of values and caches of layer 0, in the layers that left
};

// The shortened models; nothing if no layers are seen to be the same.
std::optional<FoldedPair> FoldLayers(const onnx::ModelProto& before, const onnx::ModelProto& after,
                                     const Manifest& relation);

// The facts of the whole models, in their order, but for those of the pair's seams, which are the
// last. What a fact lists as given is said of its own layer; what the layers in front of it rest on
// is in the list of the whole proof.
// `seams`: how many others there are in front of these. Nothing if a fact is not proved, or
// where it belongs is not told: the whole models must be looked at then.
std::optional<Proof> Unfold(const FoldedPair& folded, const Manifest& relation, size_t seams,
                            const Proof& proof);

}  // namespace kvlift
