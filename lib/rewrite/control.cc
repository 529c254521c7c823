#include "rewrite/control.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "base/overloaded.h"
#include "base/status.h"
#include "fmt/format.h"
#include "rewrite/host_facts.h"
#include "rewrite/relayout.h"

namespace kvlift::internal {

using sym::Expr;
using sym::Kind;

void Control::Survey() {
  for (const PlannedCache& cache : s_.caches) {
    s_.growing = s_.growing || cache.grows();
    s_.fifos = s_.fifos || cache.fifo();
    s_.rings = s_.rings || cache.ring() != nullptr;
  }
  FindBatch();
  if (!s_.growing) return;
  sym::Pool& pool = s_.pool;
  const Expr past = pool.Dim(PastSymbol());
  const auto name_length = [&](Expr length, Expr meaning) {
    if (std::find(s_.lengths.begin(), s_.lengths.end(), length->dim()) == s_.lengths.end()) {
      s_.lengths.push_back(length->dim());
    }
    s_.normal.dims[length->dim()] = meaning;
  };
  for (const PlannedCache& cache : s_.caches) {
    std::visit(Overloaded{[&](const AppendAll& all) { name_length(all.past_length, past); },
                          [&](const KeepLast& last) {
                            const Expr window = pool.Integer(last.window);
                            name_length(last.past_length, pool.Min(past, window, {}));
                          },
                          [](const WriteAt&) {}, [](const WriteAround&) {}, [](const Fifo&) {}},
               cache.how);
  }
  for (const AnalysedAttention& attention : s_.a.attention) {
    if (attention.site) CollectKeyLengthMasks(attention.site->mask.keep);
  }
  for (const auto& [input, axis] : s_.key_length_masks) {
    const Expr width = s_.forms.Of(input).shape[axis];
    if (width->kind() == Kind::kDim && !s_.normal.dims.contains(width->dim())) {
      s_.lengths.push_back(width->dim());
      s_.normal.dims[width->dim()] = pool.Add(past, s_.new_length);
    }
  }
  if (!s_.views()) RefuseOtherKeyLengthInputs();
}

void Control::FindBatch() {
  const CacheUpdate* first = nullptr;
  for (const CacheUpdate& update : s_.a.updates) {
    if (s_.growing && !update.grows()) continue;
    if (first == nullptr) first = &update;
    // A symbol for the number of new rows is preferred to a sum that contains the past length.
    const bool plain = update.new_length->kind() != Kind::kSum;
    if (s_.new_length == nullptr || (plain && s_.new_length->kind() == Kind::kSum)) {
      s_.new_length = update.new_length;
    }
  }
  s_.batch_source = first->pair.past;
  const sym::Form past = s_.forms.Of(first->pair.past);
  s_.batch = past.shape[first->layout.find('B')];
  if (first->layout.size() > 3) return;
  // The first axis of a cache of rank 3 may count heads, too: an input of tokens gives the batch.
  for (ValueId v : s_.graph.graph_inputs()) {
    const sym::Form& form = s_.forms.Of(v);
    if (!form.known_rank || form.shape.size() < 2) continue;
    if (!IsIntegerType(s_.graph.type(v).elem_type)) continue;
    s_.batch_source = v;
    s_.batch = form.shape[0];
    return;
  }
}

namespace {

// Returns true if an input of this width is not as wide as the keys: the width is the number of new
// tokens or of sequences, or the mask compares the key's index with it before it reads the input.
bool IsGuarded(const PlanState& s, Expr keep, Expr width) {
  if (width == s.new_length || width == s.batch) return true;
  if (width->kind() != Kind::kDim) return false;
  std::vector<Expr> open = {keep};
  absl::flat_hash_set<Expr> seen = {keep};
  while (!open.empty()) {
    const Expr e = open.back();
    open.pop_back();
    const std::vector<sym::DimSymbol> dims = sym::DimsOf(e);
    const bool compares = e->kind() == Kind::kLe && sym::ContainsIndex(e, 3) &&
                          !sym::ContainsIndex(e, 2) && sym::LoadsOf(e).empty();
    if (compares && dims.size() == 1 && dims[0] == width->dim()) return true;
    std::vector<Expr> inner(e->args().begin(), e->args().end());
    for (const sym::Term& term : e->terms()) {
      inner.insert(inner.end(), term.atoms.begin(), term.atoms.end());
    }
    for (Expr x : inner) {
      if (seen.insert(x).second) open.push_back(x);
    }
  }
  return false;
}

}  // namespace

// Adds the inputs that a mask predicate reads at the key's index: they are as wide as the keys.
void Control::CollectKeyLengthMasks(Expr keep) {
  for (Expr load : sym::LoadsOf(keep)) {
    if (!s_.graph.is_graph_input(load->source())) continue;
    const sym::Form& form = s_.forms.Of(load->source());
    const int32_t type = s_.graph.type(load->source()).elem_type;
    if (ElementBits(type) < 8 || (IsFloatType(type) && ElementBits(type) == 8)) {
      return s_.Refuse(
          "KV216",
          fmt::format("needs a mask of a type that Slice takes, found {}", ElementTypeName(type)),
          {}, {load->source()});
    }
    for (size_t k = 0; k < load->args().size(); ++k) {
      if (load->args()[k] == s_.pool.Index(3) && !IsGuarded(s_, keep, form.shape[k])) {
        s_.key_length_masks.insert({load->source(), static_cast<int>(k)});
      }
    }
  }
}

void Control::RefuseOtherKeyLengthInputs() {
  const auto is_cache = [&](ValueId v) {
    return std::any_of(s_.a.updates.begin(), s_.a.updates.end(), [&](const CacheUpdate& u) {
      return u.pair.past == v || u.pair.present == v;
    });
  };
  for (ValueId v : s_.graph.graph_inputs()) {
    const sym::Form& form = s_.forms.Of(v);
    if (is_cache(v) || s_.IsKeyLengthMask(v) || !form.known_rank || s_.graph.uses(v).empty())
      continue;
    for (Expr dim : form.shape) {
      for (const sym::DimSymbol& length : s_.lengths) {
        if (!sym::ContainsDim(dim, length)) continue;
        return s_.Refuse("KV215",
                         fmt::format("{} is as long as the past, and no attention reads it as a "
                                     "mask",
                                     s_.graph.name(v)),
                         {}, {v});
      }
    }
  }
}

absl::Status Control::Emit() {
  if (!s_.growing && !s_.fifos) return absl::OkStatus();
  s_.nodes.set_scope("shared");
  auto length = s_.emitter.Dim(s_.new_length);
  if (!length.ok()) {
    s_.Refuse("KV215",
              fmt::format("the number of new tokens: {}", std::string(length.status().message())),
              {s_.a.updates.front().node});
    return absl::OkStatus();
  }
  KV_RETURN_IF_ERROR(s_.derived ? EmitDerived(*length) : EmitInput(*length));
  if (s_.plan.refusal) return absl::OkStatus();
  s_.emitter.BindDim(PastSymbol(),
                     s_.uniform ? sym::DimBinding{past_, false} : sym::DimBinding{write_, true});
  for (const auto& [input, axis] : s_.key_length_masks) {
    // Masks that the host pads to the capacity are cut, unless attention is given the whole buffer.
    std::vector<int> cut;
    if (!s_.derived && !s_.views() && s_.prefix_read()) cut.push_back(axis);
    s_.emitter.BindSource(input, {s_.graph.name(input), cut});
  }
  return absl::OkStatus();
}

absl::Status Control::EmitDerived(const std::string& length) {
  KV_ASSIGN_OR_RETURN(const std::string batch, s_.emitter.Dim(s_.batch));
  const auto source = LengthSource();
  if (!source) {
    s_.Refuse("KV219", "needs a mask input as wide as the keys to derive the past's length from",
              {s_.a.updates.front().node});
    return absl::OkStatus();
  }
  total_ = s_.nodes.Extent(s_.graph.name(source->first), source->second, "total_length");
  past_ = s_.nodes.Add("Sub", {total_, length}, "past_length");
  write_ = s_.nodes.Add("Expand", {past_, batch}, "write_indices");
  valid_ = s_.nodes.Add("Expand", {total_, batch}, "nonpad_kv_seqlen");
  keys_ = total_;
  return absl::OkStatus();
}

absl::Status Control::EmitInput(const std::string& length) {
  input_ = write_ = FreeName("write_indices");
  if (s_.options.target == Target::kGenaiStatic) {
    valid_input_ = valid_ = FreeName("nonpad_kv_seqlen");
  } else {
    valid_ = s_.nodes.Add("Add", {write_, length}, "nonpad_kv_seqlen");
  }
  if (s_.options.tree_mask) tree_input_ = FreeName("tree_mask");
  keys_ = s_.nodes.Add("ReduceMax", {valid_, s_.nodes.Int64s({0})}, "visible_length");
  if (s_.uniform) {
    past_ =
        s_.nodes.Add("Slice", {write_, s_.nodes.Int64s({0}), s_.nodes.Int64s({1})}, "past_length");
    total_ = keys_;
  }
  return absl::OkStatus();
}

// Returns an input and an axis of it whose extent is P + S.
std::optional<std::pair<ValueId, int>> Control::LengthSource() {
  if (!s_.key_length_masks.empty()) return *s_.key_length_masks.begin();
  const Expr total = s_.pool.Add(s_.pool.Dim(PastSymbol()), s_.new_length);
  for (ValueId v : s_.graph.graph_inputs()) {
    const sym::Form& form = s_.forms.Of(v);
    for (size_t k = 0; form.known_rank && k < form.shape.size(); ++k) {
      if (s_.pool.Substitute(form.shape[k], s_.normal, {}) == total) {
        return std::pair(v, static_cast<int>(k));
      }
    }
  }
  return std::nullopt;
}

std::string Control::FreeName(std::string name) const {
  while (s_.graph.Find(name) != kNoValue) name += "_";
  return name;
}

// Returns the capacity of growing caches, int64 [1]; empty if all of them become rings.
std::string Control::Capacity() {
  if (s_.options.max_seq_len) return s_.nodes.Int64s({*s_.options.max_seq_len});
  // The caches stand in the order of the graph's outputs, and no layer may depend on a later one.
  const PlannedCache* first = nullptr;
  int layer = 0;
  for (size_t k = 0; k < s_.caches.size(); ++k) {
    const PlannedCache& cache = s_.caches[k];
    if (!cache.grows() || !cache.linear()) continue;
    const int own = LayerOf(s_.a, static_cast<int>(k));
    if (first != nullptr && layer <= own) continue;
    first = &cache;
    layer = own;
  }
  if (first == nullptr) return {};
  return s_.nodes.Extent(s_.graph.name(first->pair.present), PlacementOf(s_.options, *first).axis,
                         "capacity");
}

absl::StatusOr<Slots> Control::SlotsOf(const PlannedCache& cache) {
  s_.nodes.set_scope("shared");
  return std::visit(Overloaded{[&](const AppendAll&) { return GrowingSlots(cache); },
                               [&](const KeepLast&) { return GrowingSlots(cache); },
                               [&](const WriteAt&) { return BufferSlots(cache); },
                               [&](const WriteAround&) { return BufferSlots(cache); },
                               [&](const Fifo&) { return BufferSlots(cache); }},
                    cache.how);
}

absl::StatusOr<Slots> Control::BufferSlots(const PlannedCache& cache) {
  sym::Pool& pool = s_.pool;
  const Expr rows = s_.forms.Of(cache.pair.past).shape[0];
  Slots slots;
  slots.start = CountedUp(s_.forms, cache.write_index(pool));
  const Expr first = cache.axis == 0 ? pool.Integer(1) : rows;
  const Expr capacity = s_.forms.Of(cache.pair.past).shape[cache.axis];
  const Expr slot = cache.linear() ? slots.start : pool.Mod(slots.start, capacity, {});
  KV_ASSIGN_OR_RETURN(
      slots.write,
      s_.emitter.Tensor({slot, {first}, onnx::TensorProto::INT64, 0, "write_indices"}));
  KV_ASSIGN_OR_RETURN(const std::string length, s_.emitter.Dim(cache.new_length));
  const Expr batch = cache.layout[0] == 'B' ? rows : s_.batch;
  KV_ASSIGN_OR_RETURN(
      const std::string write,
      s_.emitter.Tensor({slots.start, {batch}, onnx::TensorProto::INT64, 0, "write_indices"}));
  slots.valid = s_.nodes.Add("Add", {write, length}, "nonpad_kv_seqlen");
  slots.keys = s_.nodes.Add("ReduceMax", {slots.valid, s_.nodes.Int64s({0})}, "visible_length");
  return slots;
}

absl::StatusOr<Slots> Control::GrowingSlots(const PlannedCache& cache) {
  if (const WindowRing* ring = cache.ring()) return RingSlots(cache, *ring);
  Slots slots;
  KV_ASSIGN_OR_RETURN(slots.write, WriteIndices(cache));
  slots.valid = valid_;
  slots.keys = s_.prefix_read() ? keys_ : Capacity();
  slots.start = cache.write_index(s_.pool);
  slots.whole = !s_.prefix_read();
  if (const auto window = cache.window()) {
    const std::string dropped = Dropped(past_, window);
    slots.valid = s_.nodes.Add("Sub", {valid_, dropped}, "nonpad_kv_seqlen");
    slots.keys = s_.nodes.Add("Sub", {keys_, dropped}, "visible_length");
  }
  return slots;
}

// Returns the write index once for each index on the first axis of the cache, or once if that is
// the sequence axis.
absl::StatusOr<std::string> Control::WriteIndices(const CacheUpdate& update) {
  const bool plain = !s_.uniform || (update.layout[0] == 'B' && update.layout.size() == 4);
  if (plain) return write_;
  const Expr rows = s_.forms.Of(update.pair.past).shape[0];
  KV_ASSIGN_OR_RETURN(const std::string first,
                      s_.emitter.Dim(update.axis == 0 ? s_.pool.Integer(1) : rows));
  return s_.nodes.Add("Expand", {past_, first}, "write_indices");
}

// Attention is given the whole ring: its mask says which slots hold rows of the window.
absl::StatusOr<Slots> Control::RingSlots(const CacheUpdate& update, const WindowRing& ring) {
  const Expr extent = s_.forms.Of(update.pair.past).shape[0];
  Slots& slots = rings_[{ring.window, extent}];
  if (!slots.write.empty()) {
    slots.start = update.write_index(s_.pool);
    return slots;
  }
  const int axis = PlacementOf(s_.options, update).axis;
  slots.keys = s_.nodes.Extent(s_.graph.name(update.pair.past), axis, "window_capacity");
  s_.emitter.BindDim(RingSymbol(ring.window), {slots.keys, false});
  KV_ASSIGN_OR_RETURN(const std::string write, WriteIndices(update));
  slots.write = s_.nodes.Add("Mod", {write, slots.keys}, "window_indices");
  slots.valid = s_.nodes.Add("Min", {valid_, slots.keys}, "nonpad_kv_seqlen");
  slots.start = update.write_index(s_.pool);
  slots.whole = true;
  return slots;
}

absl::StatusOr<Slots> Control::WholeBuffer(const PlannedCache& update) {
  KV_ASSIGN_OR_RETURN(Slots slots, SlotsOf(update));
  const sym::Form past = s_.forms.Of(update.pair.past);
  KV_ASSIGN_OR_RETURN(slots.keys, s_.emitter.Dim(past.shape[update.axis]));
  const Expr batch = update.layout[0] == 'B' ? past.shape[0] : s_.batch;
  KV_ASSIGN_OR_RETURN(const std::string sequences, s_.emitter.Dim(batch));
  slots.valid = s_.nodes.Add("Expand", {slots.keys, sequences}, "nonpad_kv_seqlen");
  slots.whole = true;
  return slots;
}

std::string Control::Dropped(const std::string& length, std::optional<int64_t> window) {
  if (!window) return s_.nodes.Int64s({0});
  const std::string over = s_.nodes.Add("Sub", {length, s_.nodes.Int64s({*window})}, "over");
  return s_.nodes.Add("Max", {over, s_.nodes.Int64s({0})}, "dropped");
}

std::string Control::Rows(const CacheUpdate& update, ValueId of, const std::string& before,
                          const std::string& to) {
  const std::string from = Dropped(before, update.window());
  const int64_t axis = PlacementOf(s_.options, update).axis;
  return s_.nodes.Add("Slice", {s_.graph.name(of), from, to, s_.nodes.Int64s({axis})}, "visible");
}

std::string Control::PastView(const CacheUpdate& update) {
  return Rows(update, update.pair.past, past_, past_);
}

std::string Control::PresentView(const CacheUpdate& update) {
  return Rows(update, update.pair.present, total_, total_);
}

std::string Control::ViewForAttention(const CacheUpdate& update) {
  return Rows(update, update.pair.present, past_, total_);
}

}  // namespace kvlift::internal
