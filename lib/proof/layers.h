// Stretches of a graph that follow one another and are the same: layers, but for weights and caches
// of their own.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"

namespace kvlift {

// All nodes of a graph without bodies, each behind what it reads and no earlier than something asks
// for it, so that a layer's are together wherever the file has them.
class Sequence {
 public:
  // What is made for the first of the roots comes first; all graph outputs are roots, last.
  Sequence(const Graph& graph, const std::vector<ValueId>& roots);

  const Graph& graph() const { return graph_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  NodeId node(int place) const { return nodes_[place]; }
  int place(NodeId n) const { return places_[n]; }
  // The place of what makes the value; -1 if nothing does.
  int place_of(ValueId v) const;
  // Equal for two places of one operator with the same attributes, bytes of tensors among them.
  int kind(int place) const { return kinds_[place]; }

 private:
  void Visit(NodeId root);
  void Classify();

  const Graph& graph_;
  std::vector<NodeId> nodes_;
  std::vector<int> places_;
  std::vector<int> kinds_;
};

// Layer i is at the places begin + i * length and on. Layer 0 becomes layer i by other names:
// places stay as they are relative to the begin; what is made in front of all layers, graph inputs
// and constants that both read are the same values; of what layer 0 reads else, `own` tells what
// it is in layer i.
struct Layers {
  // A value that enters each layer from the one in front of it.
  struct Carried {
    ValueId in = kNoValue;     // as layer 0 has it
    std::vector<ValueId> out;  // as it leaves layer i
  };

  int begin = 0, length = 0, count = 0;
  std::vector<Carried> carried;
  std::vector<absl::flat_hash_map<ValueId, ValueId>> own;  // by layer; the first is empty
  // Constants of layer 0 with other numbers in other layers. Nothing else reads them.
  absl::flat_hash_set<ValueId> open;

  int end() const { return begin + count * length; }
  bool Contains(int place) const { return place >= begin && place < end(); }
  // The layer that has the place; negative if none has.
  int LayerOf(int place) const { return Contains(place) ? (place - begin) / length : -1; }
};

// `count` layers, or as many of them as are the same, two at least. No value of a layer is read
// elsewhere but as carried ones are, by the next layer or behind the last. Graph inputs that differ
// are caches, read in their layer only; a value of a layer is a graph output if that of layer 0 is.
std::optional<Layers> ReadLayers(const Sequence& sequence, int begin, int length, int count,
                                 const absl::flat_hash_set<ValueId>& caches);

}  // namespace kvlift
