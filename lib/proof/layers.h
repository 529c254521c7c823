// Finds consecutive stretches of a graph that are equal layers: the same nodes, apart from their
// own weights and caches.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"

namespace kvlift {

// All nodes of a graph without subgraphs, in a topological order in which the nodes of a layer are
// adjacent: each node comes after its operands and as late as its first reader allows. An idle
// node, on which no graph output depends, follows as soon as all its operands have appeared.
class Sequence {
 public:
  // Orders the nodes that make the first root first, then those of the other roots, the graph
  // outputs and all remaining nodes. Roots may be kNoValue. The graph must outlive the sequence.
  Sequence(const Graph& graph, const std::vector<ValueId>& roots);

  const Graph& graph() const { return graph_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  NodeId node(int place) const { return nodes_[place]; }
  int place(NodeId n) const { return places_[n]; }
  // The place of the node that makes the value; -1 if no node does.
  int place_of(ValueId v) const;
  // A number that is equal for two places whose nodes have the same domain, operator and
  // attributes, including the bytes of tensor attributes.
  int kind(int place) const { return kinds_[place]; }

 private:
  void Visit(NodeId root);
  void CountOperandsOfIdleNodes(const std::vector<ValueId>& roots);
  void Place(NodeId first);
  void Classify();

  const Graph& graph_;
  std::vector<NodeId> nodes_;
  std::vector<int> places_;
  std::vector<int> kinds_;
  absl::flat_hash_map<NodeId, int> idle_;  // idle nodes -> operands that have not appeared yet
  absl::flat_hash_set<ValueId> appeared_;  // values that a placed node makes or reads
};

// Layer i has the places [begin + i * length, begin + (i + 1) * length). Layer 0 becomes layer i by
// other names: its own results move by i * length places, what is made before all layers and read
// by both stays the same, and `own[i]` maps each value that layer 0 reads from outside itself to
// what layer i reads instead.
struct Layers {
  // A value that each layer passes on to the next.
  struct Carried {
    ValueId in = kNoValue;     // the value that layer 0 reads
    std::vector<ValueId> out;  // by layer: the value that the layer passes on
  };

  int begin = 0, length = 0, count = 0;
  std::vector<Carried> carried;
  std::vector<absl::flat_hash_map<ValueId, ValueId>> own;  // by layer; empty for layer 0
  // Constants of layer 0 that hold other numbers in other layers. Nothing outside layer 0 reads
  // them.
  absl::flat_hash_set<ValueId> open;

  int end() const { return begin + count * length; }
  bool Contains(int place) const { return place >= begin && place < end(); }
  // The layer at a place; -1 if the place is in none.
  int LayerOf(int place) const { return Contains(place) ? (place - begin) / length : -1; }
};

// Reads up to `count` equal layers of `length` places each, from place `begin` on. Returns nullopt
// if there are fewer than two. Layers are equal if their nodes, attributes, types, small constants
// and wiring are. Outside its layer a value is read only if it is carried: by the next layer, or
// after the last one. Graph inputs that differ between layers are in `caches` and read in their own
// layer only. A value is a graph output in each layer or in none.
std::optional<Layers> ReadLayers(const Sequence& sequence, int begin, int length, int count,
                                 const absl::flat_hash_set<ValueId>& caches);

}  // namespace kvlift
