// A model whose caches are in the main graph and written by standard operators, and what was
// changed in the source for it (rewrite/lower/normalise.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/findings.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// A cache that is a part of a packed tensor in the source.
struct UnpackedCache {
  std::string input;   // the input that the part became
  SourceCache source;  // the part in the source's tensor; its kind is not read
  // The scales of the part's rows in the source's tensor; `input` is empty if rows have no scales.
  SourceCache scales;
};

struct Unpacked {
  std::vector<UnpackedCache> caches;
  int64_t group = 0;  // elements that share a scale; 0: rows are not quantised

  // Returns the cache with this input; nullptr if no cache has it.
  const UnpackedCache* Find(const std::string& input) const;
};

// A cache whose newest rows the source holds in a sliding buffer, and whose rows the model holds
// all, in a past that grows.
struct SlidingRows {
  std::string input;  // the past
  SlidingBuffer buffer;
};

// The scale and the softcap of an attention that the lowering spells out. In half precision its
// nodes hold them rounded.
struct SpelledScores {
  std::string prefix;  // of the names of its nodes
  double scale = 0, softcap = 0;
};

// The treatment of masks that must hold ones and that no node reads any more.
enum class UnreadMasks {
  kDrop,
  kKeep,  // their width gives the past's length
};

struct Normalised {
  onnx::ModelProto model;
  std::vector<DroppedInput> dropped;  // inputs of the source that the model does not have
  // Other inputs, [B, P + S], whose elements all have to be 1. With UnreadMasks::kKeep perhaps no
  // node reads them any more.
  std::vector<std::string> all_ones;
  std::vector<Precondition> preconditions;  // under which the model is equivalent to the source
  ManifestLimits limits;
  // Why the node nodes[0] was left as it is; reported for the caches that depend on it.
  std::vector<Finding> refusals;
  // Nodes whose names start with `prefix` replace the source's node `node`.
  struct Origin {
    std::string prefix, node;
  };
  std::vector<Origin> origins;
  Unpacked unpacked;  // caches that are parts of packed tensors of the source
  std::vector<SlidingRows> sliding;
  std::vector<SpelledScores> scores;

  // If the finding is about a node that could not be normalised, replaces it by the refusal that
  // says why.
  void GiveReason(Finding* finding) const;
  // Returns true if no node of the source has this name, but one that replaces a node of it.
  bool IsReplacement(const std::string& node) const;
  // Replaces names of nodes by those of the source's nodes that they stand for, each once.
  void NameSource(std::vector<std::string>* nodes) const;
};

}  // namespace kvlift
