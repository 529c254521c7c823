// Decides where the values of a step lie in memory once their sizes are known: which are parts of
// other values, which take over the memory of an operand, and the arena offset of each of the
// others.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "exec/compile/plan.h"
#include "exec/compile/wiring.h"
#include "exec/memory/arena.h"
#include "ir/graph.h"

namespace kvlift::exec {

// The properties of one value on which the layout depends.
struct Extent {
  int64_t bytes = 0;
  // Byte offset of the value in input 0 of its step, for results of Slice, Split and Transpose that
  // may be a view; -1: the value needs memory of its own.
  int64_t part = -1;
  // Pitch of such a part, in elements; 0: dense. A part with a pitch becomes a copy unless all
  // readers accept it.
  int64_t pitch = 0;
};

class Layout {
 public:
  // The graph, plan and wiring must outlive the layout.
  Layout(const Graph& graph, const Plan& plan, const Wiring& wiring)
      : graph_(graph), plan_(plan), wiring_(wiring) {}

  // Returns true if the current layout has room for values of these extents. Moves parts to their
  // new offsets. Returns false before Make, and if the values have become much smaller.
  bool Fits(absl::Span<const Extent> extents);
  // Makes a new layout. A block that has grown by little since the last layout gets room to grow
  // further.
  void Make(absl::Span<const Extent> extents);

  bool made() const { return !places_.empty(); }
  size_t arena_bytes() const { return arena_bytes_; }
  // Returns the value in whose memory v lies; v itself if it is not a view.
  ValueId root(ValueId v) const { return places_[v].root; }
  // Returns the byte offset of v in its root; for a root with Home::kArena, that in the arena.
  size_t offset(ValueId v) const { return places_[v].offset; }
  // Returns all values that lie in the memory of `root`, including `root`.
  absl::Span<const ValueId> members(ValueId root) const { return members_[root]; }
  // Returns the roots whose parts the last call of Fits moved.
  absl::Span<const ValueId> moved() const { return moved_; }

 private:
  struct Place {
    ValueId root = kNoValue;
    size_t offset = 0;
    int block = -1;  // index of the arena block; -1: not a root in the arena
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
  // Steps whose outputs can be parts of an input, and whether they are in this layout.
  std::vector<std::pair<int, bool>> part_steps_;
  std::vector<int> end_;  // by root: the last step that reads it or a view of it
  std::vector<Block> blocks_;
  std::vector<size_t> block_offsets_;
  std::vector<std::pair<ValueId, ValueId>> taken_over_;  // result and operand that share a block
  std::vector<int64_t> room_;                            // by value: bytes of its block
  ByValue<ValueId> members_;
  std::vector<ValueId> moved_;
  size_t arena_bytes_ = 0;
  int64_t needed_ = 0;  // sum of the bytes of all values in blocks
};

}  // namespace kvlift::exec
