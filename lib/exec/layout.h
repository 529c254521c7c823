// Where the values of a step lie, given how large they are: which are parts of others, which take
// over the memory of an operand, and at which offset of the arena the others live.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "exec/arena.h"
#include "exec/plan.h"
#include "exec/wiring.h"
#include "ir/graph.h"

namespace kvlift::exec {

// What the layout depends on, by value.
struct Extent {
  int64_t bytes = 0;
  // The value is this many bytes behind the start of its step's input 0, or a copy: -1. Of Slice
  // and its like only; known when the elements are that their shape functions read.
  int64_t part = -1;
  int64_t pitch = 0;  // of the part, in elements; others are copies unless all readers accept it
};

class Layout {
 public:
  // All outlive the layout.
  Layout(const Graph& graph, const Plan& plan, const Wiring& wiring)
      : graph_(graph), plan_(plan), wiring_(wiring) {}

  // Whether the present layout holds values of these extents. Moves parts to their new offsets.
  bool Fits(absl::Span<const Extent> extents);
  // A new layout. Blocks that have grown a little since the last one get room to grow further.
  void Make(absl::Span<const Extent> extents);

  bool made() const { return !places_.empty(); }
  size_t arena_bytes() const { return arena_bytes_; }
  // The value in whose memory v lies; itself if it is no view.
  ValueId root(ValueId v) const { return places_[v].root; }
  // Of v in its root; of a root with Home::kArena: in the arena.
  size_t offset(ValueId v) const { return places_[v].offset; }
  // All values that lie in the memory of `root`, itself included.
  absl::Span<const ValueId> members(ValueId root) const { return members_[root]; }
  // Roots of which the last call of Fits moved parts.
  absl::Span<const ValueId> moved() const { return moved_; }

 private:
  struct Place {
    ValueId root = kNoValue;
    size_t offset = 0;
    int block = -1;  // of roots in the arena
  };
  struct ViewOf {
    ValueId view, source;
    bool part;
  };

  void FindRoots(absl::Span<const Extent> extents);
  void AddView(ValueId view, ValueId source, bool part, absl::Span<const Extent> extents);
  bool MayMakeParts(const StepPlan& step) const;
  bool MakesParts(const StepPlan& step, absl::Span<const Extent> extents) const;
  void MakeBlocks(absl::Span<const Extent> extents);
  int BlockToTakeOver(int s, absl::Span<const Extent> extents) const;
  int64_t RoomFor(ValueId v, int64_t bytes) const;
  void PlaceBlocks();
  void MoveParts(absl::Span<const Extent> extents);

  const Graph& graph_;
  const Plan& plan_;
  const Wiring& wiring_;
  std::vector<Place> places_;  // by value; empty before Make
  std::vector<ViewOf> views_;  // in the order of the steps
  // Steps that can make parts, and whether they do in this layout.
  std::vector<std::pair<int, bool>> part_steps_;
  std::vector<int> end_;  // by root: the last step that needs it
  std::vector<Block> blocks_;
  std::vector<size_t> block_offsets_;
  std::vector<std::pair<ValueId, ValueId>> taken_over_;  // result and operand in one block
  std::vector<int64_t> room_;                            // by value: of its block
  ByValue<ValueId> members_;
  std::vector<ValueId> moved_;
  size_t arena_bytes_ = 0;
  int64_t needed_ = 0;  // sum of all values in blocks
};

}  // namespace kvlift::exec
