#include "rewrite/emit/control.h"

#include "base/overloaded.h"
#include "base/status.h"
#include "fmt/format.h"

namespace kvlift::internal {

using sym::Expr;

absl::Status Control::Emit() {
  if (std::holds_alternative<NoIndex>(s_.plan.index)) return absl::OkStatus();
  s_.nodes.set_scope("shared");
  KV_ASSIGN_OR_RETURN(const std::string length, s_.emitter.Dim(s_.plan.extents.new_length));
  if (const auto* derived = std::get_if<DerivedIndex>(&s_.plan.index)) {
    KV_RETURN_IF_ERROR(EmitDerived(*derived, length));
  }
  if (const auto* inputs = std::get_if<IndexInputs>(&s_.plan.index)) EmitInput(*inputs, length);
  s_.emitter.BindDim(PastSymbol(), s_.plan.uniform ? sym::DimBinding{past_, false}
                                                   : sym::DimBinding{write_, true});
  for (const auto& [input, axis] : s_.plan.extents.key_length_masks) {
    // Masks that the host pads to the capacity are cut, unless attention is given the whole buffer.
    std::vector<int> cut;
    if (s_.plan.mask_width == MaskWidth::kCapacity && s_.plan.prefix_read()) cut.push_back(axis);
    s_.emitter.BindSource(input, {s_.graph.name(input), cut});
  }
  return absl::OkStatus();
}

absl::Status Control::EmitDerived(const DerivedIndex& index, const std::string& length) {
  KV_ASSIGN_OR_RETURN(const std::string batch, s_.emitter.Dim(s_.plan.extents.batch));
  total_ = s_.nodes.Extent(s_.graph.name(index.input), index.axis, "total_length");
  past_ = s_.nodes.Add("Sub", {total_, length}, "past_length");
  write_ = s_.nodes.Add("Expand", {past_, batch}, "write_indices");
  valid_ = s_.nodes.Add("Expand", {total_, batch}, "nonpad_kv_seqlen");
  keys_ = total_;
  return absl::OkStatus();
}

void Control::EmitInput(const IndexInputs& inputs, const std::string& length) {
  write_ = inputs.write_indices;
  valid_ = inputs.nonpad_kv_seqlen.empty()
               ? s_.nodes.Add("Add", {write_, length}, "nonpad_kv_seqlen")
               : inputs.nonpad_kv_seqlen;
  keys_ = s_.nodes.Add("ReduceMax", {valid_, s_.nodes.Int64s({0})}, "visible_length");
  if (s_.plan.uniform) {
    past_ =
        s_.nodes.Add("Slice", {write_, s_.nodes.Int64s({0}), s_.nodes.Int64s({1})}, "past_length");
    total_ = keys_;
  }
}

// Returns the capacity of growing caches, int64 [1]; empty if all of them become rings.
std::string Control::Capacity() {
  if (s_.plan.options.max_seq_len) return s_.nodes.Int64s({*s_.plan.options.max_seq_len});
  if (s_.plan.capacity_cache < 0) return {};
  const PlannedCache& cache = s_.plan.caches[s_.plan.capacity_cache];
  return s_.nodes.Extent(s_.graph.name(cache.pair.present), cache.placement.axis, "capacity");
}

absl::StatusOr<Slots> Control::SlotsOf(int cache) {
  s_.nodes.set_scope("shared");
  const WriteIndex& index = s_.plan.writes[cache].index;
  if (const auto* source = std::get_if<SourceIndex>(&index)) return BufferSlots(*source);
  const PlannedCache& planned = s_.plan.caches[cache];
  if (const WindowRing* ring = planned.ring()) return RingSlots(planned, *ring, index);
  return GrowingSlots(planned, index);
}

absl::StatusOr<Slots> Control::SlotsOf(int cache, const KeysRead& read) {
  KV_ASSIGN_OR_RETURN(Slots slots, SlotsOf(cache));
  if (const auto* all = std::get_if<AllSlotsValid>(&read)) {
    KV_ASSIGN_OR_RETURN(slots.keys, s_.emitter.Dim(all->slots));
    KV_ASSIGN_OR_RETURN(const std::string sequences, s_.emitter.Dim(all->batch));
    slots.valid = s_.nodes.Add("Expand", {slots.keys, sequences}, "nonpad_kv_seqlen");
  }
  return slots;
}

absl::StatusOr<Slots> Control::BufferSlots(const SourceIndex& index) {
  Slots slots;
  KV_ASSIGN_OR_RETURN(slots.write, s_.emitter.Tensor(index.slot));
  KV_ASSIGN_OR_RETURN(const std::string length, s_.emitter.Dim(index.new_length));
  KV_ASSIGN_OR_RETURN(const std::string start, s_.emitter.Tensor(index.start));
  slots.valid = s_.nodes.Add("Add", {start, length}, "nonpad_kv_seqlen");
  slots.keys = s_.nodes.Add("ReduceMax", {slots.valid, s_.nodes.Int64s({0})}, "visible_length");
  slots.counted = true;
  return slots;
}

absl::StatusOr<Slots> Control::GrowingSlots(const PlannedCache& cache, const WriteIndex& index) {
  Slots slots;
  KV_ASSIGN_OR_RETURN(slots.write, WriteIndices(index));
  slots.valid = valid_;
  slots.keys = s_.plan.prefix_read() ? keys_ : Capacity();
  slots.counted = s_.plan.prefix_read() && Counts(cache);
  if (const auto window = cache.window()) {
    const std::string dropped = Dropped(past_, window);
    slots.valid = s_.nodes.Add("Sub", {valid_, dropped}, "nonpad_kv_seqlen");
    slots.keys = s_.nodes.Add("Sub", {keys_, dropped}, "visible_length");
  }
  return slots;
}

absl::StatusOr<std::string> Control::WriteIndices(const WriteIndex& index) {
  const auto* repeated = std::get_if<RepeatedIndex>(&index);
  if (repeated == nullptr) return write_;
  KV_ASSIGN_OR_RETURN(const std::string count, s_.emitter.Dim(repeated->count));
  return s_.nodes.Add("Expand", {past_, count}, "write_indices");
}

// Attention is given the whole ring: its mask says which slots hold rows of the window.
absl::StatusOr<Slots> Control::RingSlots(const PlannedCache& cache, const WindowRing& ring,
                                         const WriteIndex& index) {
  const Expr extent = s_.forms.Of(cache.pair.past).shape[0];
  Slots& slots = rings_[{ring.window, extent}];
  if (!slots.write.empty()) return slots;
  slots.keys =
      s_.nodes.Extent(s_.graph.name(cache.pair.past), cache.placement.axis, "window_capacity");
  s_.emitter.BindDim(RingSymbol(ring.window), {slots.keys, false});
  KV_ASSIGN_OR_RETURN(const std::string write, WriteIndices(index));
  slots.write = s_.nodes.Add("Mod", {write, slots.keys}, "window_indices");
  slots.valid = s_.nodes.Add("Min", {valid_, slots.keys}, "nonpad_kv_seqlen");
  return slots;
}

std::string Control::Dropped(const std::string& length, std::optional<int64_t> window) {
  if (!window) return s_.nodes.Int64s({0});
  const std::string over = s_.nodes.Add("Sub", {length, s_.nodes.Int64s({*window})}, "over");
  return s_.nodes.Add("Max", {over, s_.nodes.Int64s({0})}, "dropped");
}

bool Control::Counts(const PlannedCache& cache) const {
  return std::holds_alternative<IndexInputs>(s_.plan.index) && !cache.window();
}

std::string Control::Rows(const PlannedCache& cache, ValueId of, const std::string& from,
                          const std::string& to, bool counted) {
  const std::string axis = s_.nodes.Int64s({cache.placement.axis});
  std::string rows = s_.nodes.Add("Slice", {s_.graph.name(of), from, to, axis}, "visible");
  EmittedCache& made = s_.Made(cache);
  if (of == cache.pair.present && made.View(rows) == nullptr) made.views.push_back({rows, counted});
  return rows;
}

std::string Control::PastView(const PlannedCache& cache) {
  return Rows(cache, cache.pair.past, Dropped(past_, cache.window()), past_, false);
}

std::string Control::PresentView(const PlannedCache& cache) {
  const std::string from = Dropped(total_, cache.window());
  return Rows(cache, cache.pair.present, from, total_, Counts(cache));
}

std::string Control::ViewForAttention(const PlannedCache& cache) {
  const std::string from = Dropped(past_, cache.window());
  return Rows(cache, cache.pair.present, from, total_, Counts(cache));
}

}  // namespace kvlift::internal
