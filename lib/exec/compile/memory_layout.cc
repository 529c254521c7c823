#include "exec/compile/memory_layout.h"

#include <algorithm>
#include <utility>

namespace kvlift::exec {

bool Layout::Fits(absl::Span<const Extent> extents) {
  moved_.clear();
  if (places_.empty()) return false;
  int64_t needed = 0;
  for (size_t v = 0; v < places_.size(); ++v) {
    if (places_[v].block < 0) continue;
    if (extents[v].bytes > room_[v]) return false;
    needed += extents[v].bytes;
  }
  // Values of a small step that are far apart would waste the processor's caches.
  if (needed < needed_ / 4) return false;
  for (const auto& [result, operand] : taken_over_) {
    if (extents[result].bytes != extents[operand].bytes) return false;
  }
  for (const auto& [step, parts] : part_steps_) {
    if (MakesParts(plan_.steps[step], extents) != parts) return false;
  }
  MoveParts(extents);
  return true;
}

void Layout::MoveParts(absl::Span<const Extent> extents) {
  for (const ViewOf& view : views_) {
    Place& place = places_[view.view];
    size_t offset = place.root == view.source ? 0 : places_[view.source].offset;
    if (view.part) offset += static_cast<size_t>(extents[view.view].part);
    if (offset == place.offset) continue;
    place.offset = offset;
    if (moved_.empty() || moved_.back() != place.root) moved_.push_back(place.root);
  }
}

void Layout::Make(absl::Span<const Extent> extents) {
  FindRoots(extents);
  MakeBlocks(extents);
  PlaceBlocks();
  std::vector<std::pair<ValueId, ValueId>> members;
  for (ValueId v = 0; v < graph_.num_values(); ++v) members.emplace_back(places_[v].root, v);
  members_ = ByValue<ValueId>(graph_.num_values(), members);
}

// Results that others hold must be copies. So must parts of a past that is written in place, which
// would otherwise show the write, and parts of values whose pitch is known only later.
bool Layout::MayMakeParts(const StepPlan& step) const {
  if (step.def->part == nullptr || step.timing != Timing::kPlanned) return false;
  for (const ValueId out : graph_.outputs(step.node)) {
    if (out != kNoValue && plan_.values[out].home != Home::kArena) return false;
  }
  const ValueId source = graph_.inputs(step.node)[0];
  if (plan_.apart[source]) return false;
  const ValuePlan& root = plan_.values[plan_.values[source].root];
  if (root.home != Home::kInput) return true;
  return std::none_of(plan_.pairs.begin(), plan_.pairs.end(), [&](const PairPlan& pair) {
    const bool written = pair.writer != kNoNode || pair.guard != kNoNode;
    return written && plan_.values[pair.past].index == root.index;
  });
}

bool Layout::MakesParts(const StepPlan& step, absl::Span<const Extent> extents) const {
  const auto outputs = graph_.outputs(step.node);
  return std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) {
    return v == kNoValue ||
           (extents[v].part >= 0 && (extents[v].pitch == 0 || wiring_.may_have_pitch[v]));
  });
}

void Layout::AddView(ValueId view, ValueId source, bool part, absl::Span<const Extent> extents) {
  Place& place = places_[view];
  const Place& from = places_[source];
  place.root = from.root;
  place.offset = source == from.root ? 0 : from.offset;
  if (part) place.offset += static_cast<size_t>(extents[view].part);
  views_.push_back({view, source, part});
}

void Layout::FindRoots(absl::Span<const Extent> extents) {
  places_.assign(graph_.num_values(), {});
  for (ValueId v = 0; v < graph_.num_values(); ++v) places_[v].root = v;
  views_.clear();
  part_steps_.clear();
  for (size_t s = 0; s < plan_.steps.size(); ++s) {
    const StepPlan& step = plan_.steps[s];
    if (step.def == nullptr) continue;
    const auto inputs = graph_.inputs(step.node), outputs = graph_.outputs(step.node);
    if (step.def->view == ViewKind::kWhole) {
      if (outputs[0] != kNoValue) AddView(outputs[0], inputs[0], false, extents);
      continue;
    }
    if (!MayMakeParts(step)) continue;
    const bool parts = MakesParts(step, extents);
    part_steps_.emplace_back(static_cast<int>(s), parts);
    for (const ValueId out : outputs) {
      if (parts && out != kNoValue) AddView(out, inputs[0], true, extents);
    }
  }
  end_.assign(graph_.num_values(), -1);
  for (ValueId v = 0; v < graph_.num_values(); ++v) {
    int& end = end_[places_[v].root];
    end = std::max(end, wiring_.last_use[v]);
  }
}

// Returns the block of the step's in-place operand if no other node needs the operand any more and
// the result has the same size; else -1.
int Layout::BlockToTakeOver(int s, absl::Span<const Extent> extents) const {
  const StepPlan& step = plan_.steps[s];
  const auto inputs = graph_.inputs(step.node);
  const int index = step.def->inplace_input;
  if (index < 0 || index >= static_cast<int>(inputs.size()) || inputs[index] == kNoValue) return -1;
  const ValueId in = inputs[index], root = places_[in].root;
  const Place& place = places_[root];
  const int64_t bytes = extents[graph_.outputs(step.node)[0]].bytes;
  if (place.block < 0 || end_[root] != s || extents[in].bytes != bytes ||
      extents[root].bytes != bytes) {
    return -1;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (static_cast<int>(i) != index && inputs[i] != kNoValue && places_[inputs[i]].root == root) {
      return -1;
    }
  }
  return place.block;
}

// A value that has outgrown its block by little probably grows with the number of tokens, and gets
// room.
int64_t Layout::RoomFor(ValueId v, int64_t bytes) const {
  const int64_t before = v < static_cast<ValueId>(room_.size()) ? room_[v] : 0;
  if (bytes > before) return bytes / 2 <= before ? bytes + bytes / 4 : bytes;
  return bytes > before / 2 ? before : bytes;
}

void Layout::MakeBlocks(absl::Span<const Extent> extents) {
  blocks_.clear();
  taken_over_.clear();
  needed_ = 0;
  for (int s = 0; s < static_cast<int>(plan_.steps.size()); ++s) {
    const StepPlan& step = plan_.steps[s];
    const auto outputs = graph_.outputs(step.node);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const ValueId v = outputs[o];
      if (v == kNoValue || plan_.values[v].home != Home::kArena || places_[v].root != v) continue;
      int block = o == 0 ? BlockToTakeOver(s, extents) : -1;
      if (block >= 0) {
        taken_over_.emplace_back(v, graph_.inputs(step.node)[step.def->inplace_input]);
      } else {
        block = static_cast<int>(blocks_.size());
        blocks_.push_back({0, s, s});
      }
      Block& b = blocks_[block];
      b.bytes = std::max(b.bytes, static_cast<size_t>(RoomFor(v, extents[v].bytes)));
      b.last = std::max(b.last, end_[v]);
      places_[v].block = block;
      needed_ += extents[v].bytes;
    }
  }
}

void Layout::PlaceBlocks() {
  arena_bytes_ = PackArena(blocks_, &block_offsets_);
  room_.assign(places_.size(), 0);
  for (size_t v = 0; v < places_.size(); ++v) {
    Place& place = places_[v];
    if (place.block < 0) continue;
    place.offset = block_offsets_[place.block];
    room_[v] = static_cast<int64_t>(blocks_[place.block].bytes);
  }
}

}  // namespace kvlift::exec
