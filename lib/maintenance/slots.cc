#include "maintenance/slots.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "maintenance/cache_views.h"
#include "maintenance/slot_masks.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using internal::CacheViews;
using internal::MakeRefusal;
using internal::WrittenCache;
using sym::Expr;

constexpr int kUpdate = 1, kIndices = 2;  // of TensorScatter
constexpr int kQuery = 0, kKey = 1, kValue = 2, kMask = 3, kPastKey = 4,
              kNonpad = 6;  // of Attention

ValueId Operand(const Graph& graph, NodeId n, int k) {
  const auto inputs = graph.inputs(n);
  return k < static_cast<int>(inputs.size()) ? inputs[k] : kNoValue;
}

// Follows write indices and what is computed from them, up to the first floating-point results.
class SlotReader {
 public:
  SlotReader(const Graph& graph, const Manifest& manifest)
      : graph_(graph), manifest_(manifest), forms_(graph), pool_(forms_.pool()) {}

  SlotReading Run() {
    SlotReading reading;
    reading.refusal = Read();
    reading.by_slot = by_slot_;
    if (reading.refusal) reading.by_slot.clear();
    return reading;
  }

 private:
  std::optional<Finding> Read() {
    if (auto refusal = internal::ReadCacheViews(graph_, manifest_, &views_)) return refusal;
    for (const ManifestInput& input : manifest_.inputs) {
      const bool length = IsControl(input, ControlValue::kPastLength) ||
                          IsControl(input, ControlValue::kTotalLength);
      if (length) MarkRoot(graph_.Find(input.name));
    }
    for (const WrittenCache& cache : views_.caches) {
      MarkRoot(Operand(graph_, cache.writer, kIndices));
      const Expr start = StartOf(cache);
      if (start == nullptr) {
        return MakeRefusal("KV234", "needs a write index that can be read", graph_, cache.writer);
      }
      for (const sym::DimSymbol& dim : DimsWithoutTokens(start, cache)) slot_dims_.insert(dim);
    }
    for (const NodeId attention : views_.attentions) {
      if (auto refusal = JudgeAttention(attention)) return refusal;
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (auto refusal = JudgeNode(n)) return refusal;
    }
    return JudgeOutputs();
  }

  // Marks all values that the root is computed from, down to graph inputs.
  void MarkRoot(ValueId root) {
    std::vector<ValueId> stack = {root};
    while (!stack.empty()) {
      const ValueId v = stack.back();
      stack.pop_back();
      if (v == kNoValue || graph_.constant(v) != nullptr || marked_.contains(v)) continue;
      const sym::Form& form = forms_.Of(v);
      const NodeId producer = graph_.producer(v);
      if (form.known_rank && !form.opaque) {
        for (const ValueId source : sym::SourcesOf(form.element)) stack.push_back(source);
        continue;
      }
      marked_.insert(v);
      if (producer == kNoNode) continue;
      for (const ValueId input : graph_.inputs(producer)) stack.push_back(input);
    }
  }

  // Returns the slot of the first new token of sequence i0; null if it is not known.
  Expr StartOf(const WrittenCache& cache) {
    const ValueId indices = Operand(graph_, cache.writer, kIndices);
    if (indices == kNoValue) return pool_.Integer(0);
    const sym::Form& form = forms_.Of(indices);
    return form.known_rank ? form.element : nullptr;
  }

  // Returns the number of new tokens of a step; null if it is not known.
  Expr NewTokens(const WrittenCache& cache) {
    const sym::Form& form = forms_.Of(Operand(graph_, cache.writer, kUpdate));
    const bool known =
        form.known_rank && cache.entry->axis < static_cast<int64_t>(form.shape.size());
    return known ? form.shape[cache.entry->axis] : nullptr;
  }

  std::vector<sym::DimSymbol> DimsWithoutTokens(Expr start, const WrittenCache& cache) {
    std::vector<sym::DimSymbol> dims = sym::DimsOf(start);
    const Expr tokens = NewTokens(cache);
    if (tokens == nullptr) return dims;
    const std::vector<sym::DimSymbol> known = sym::DimsOf(tokens);
    std::erase_if(dims, [&](const sym::DimSymbol& dim) {
      return std::find(known.begin(), known.end(), dim) != known.end();
    });
    return dims;
  }

  // Returns true for symbols that depend on numbers of slots. A symbol without an origin depends on
  // data: it counts valid rows.
  bool IsSlotDim(const sym::DimSymbol& dim) const {
    return slot_dims_.contains(dim) || !forms_.OriginOf(dim);
  }

  bool IsMarked(Expr e) const {
    for (const ValueId source : sym::SourcesOf(e)) {
      if (marked_.contains(source)) return true;
    }
    const std::vector<sym::DimSymbol> dims = sym::DimsOf(e);
    return std::any_of(dims.begin(), dims.end(),
                       [this](const sym::DimSymbol& dim) { return IsSlotDim(dim); });
  }

  // Returns true if the elements of the value depend on numbers of slots.
  bool IsMarked(ValueId v) {
    if (v == kNoValue || views_.views.contains(v)) return false;
    if (marked_.contains(v)) return true;
    const sym::Form& form = forms_.Of(v);
    return form.known_rank && !form.opaque && IsMarked(form.element);
  }

  std::optional<Finding> JudgeAttention(NodeId attention) {
    int cache = -1;
    for (const int k : {kKey, kValue}) {
      const auto view = views_.views.find(Operand(graph_, attention, k));
      if (view == views_.views.end()) {
        return MakeRefusal("KV234", "needs keys and values that are caches", graph_, attention);
      }
      if (!KeepsSlots(view->first, views_.caches[view->second])) {
        return MakeRefusal(
            "KV234", fmt::format("needs slots in their order, found {}", graph_.name(view->first)),
            graph_, attention);
      }
      cache = view->second;
    }
    const WrittenCache& written = views_.caches[cache];
    const Expr start = StartOf(written), tokens = NewTokens(written);
    const bool own_past = Operand(graph_, attention, kPastKey) != kNoValue;
    const ValueId nonpad = Operand(graph_, attention, kNonpad);
    const bool valid =
        tokens != nullptr && (IsValidLength(nonpad, pool_.Add(start, tokens)) ||
                              IsValidLength(nonpad, pool_.Add(AtFirst(start), tokens)));
    if (own_past || !valid) {
      return MakeRefusal("KV234", "needs nonpad_kv_seqlen to be the write index and the new tokens",
                         graph_, attention);
    }
    return JudgeMask(attention, start);
  }

  // Returns true if slot k of the cache is at place k of the keys or values that attention reads.
  bool KeepsSlots(ValueId view, const WrittenCache& cache) {
    const sym::Form& form = forms_.Of(view);
    if (!form.known_rank || form.opaque) return ReachedInPlace(view);
    const int axis = form.shape.size() == 4 ? 2 : 1;
    for (const Expr load : sym::LoadsOf(form.element)) {
      if (load->source() != cache.past) continue;
      if (load->args()[cache.entry->axis] != pool_.Index(axis)) return false;
    }
    return true;
  }

  // Returns true if no node between the cache and the view can merge the axis of slots with others.
  bool ReachedInPlace(ValueId view) const {
    for (ValueId v = view;;) {
      const NodeId n = graph_.producer(v);
      if (n == kNoNode || graph_.Is(n, "TensorScatter")) return true;
      if (graph_.Is(n, "Reshape") || graph_.Is(n, "Expand") || graph_.Is(n, "Transpose")) {
        return false;
      }
      v = graph_.inputs(n)[0];
    }
  }

  bool IsValidLength(ValueId nonpad, Expr end) {
    if (nonpad == kNoValue) return false;
    for (const ManifestInput& input : manifest_.inputs) {
      const bool given = IsControl(input, ControlValue::kTotalLength);
      if (given && graph_.name(nonpad) == input.name) return true;
    }
    const sym::Form& form = forms_.Of(nonpad);
    return form.known_rank && form.element == end;
  }

  std::optional<Finding> JudgeMask(NodeId attention, Expr start) {
    const ValueId mask = Operand(graph_, attention, kMask);
    if (mask == kNoValue) return std::nullopt;
    const sym::Form& form = forms_.Of(mask);
    if (!form.known_rank || form.shape.empty()) return OfMask(attention, mask);
    const int slots = static_cast<int>(form.shape.size()) - 1;
    internal::SlotMask read(forms_, slots, {start, AtFirst(start)}, forms_.FactsFor(mask),
                            [this](Expr e) { return IsMarked(e); });
    if (!read.MeansTheSame(form.element)) return OfMask(attention, mask);
    for (const auto& [input, axis] : read.by_slot()) AddBySlot(input, axis);
    return std::nullopt;
  }

  // Returns the start of the first sequence, which is that of all if the manifest says uniform or
  // the model is frozen to one sequence; else `start`.
  Expr AtFirst(Expr start) {
    const bool one = manifest_.frozen && manifest_.frozen->batch == 1;
    if (!manifest_.uniform && !one) return start;
    sym::Pool::Substitution s;
    s.indices = {pool_.Integer(0)};
    return pool_.Substitute(start, s, {});
  }

  void AddBySlot(ValueId input, int axis) {
    const std::string& name = graph_.name(input);
    if (std::find(by_slot_.begin(), by_slot_.end(), name) != by_slot_.end()) return;
    by_slot_.push_back(name);
    // Sums over its entries, and its extent, depend on numbers of slots.
    masks_.insert(input);
    for (const sym::DimSymbol& dim : sym::DimsOf(forms_.Of(input).shape[axis])) {
      slot_dims_.insert(dim);
    }
  }

  // Returns "mask = i3 <= ...", cut if it is long.
  std::string TextOf(ValueId v) {
    constexpr size_t kMost = 300;
    const sym::Form& form = forms_.Of(v);
    std::string what = form.known_rank ? sym::ToString(form.element, &graph_) : "?";
    if (what.size() > kMost) what = what.substr(0, kMost) + "...";
    return fmt::format("{} = {}", graph_.name(v), what);
  }

  Finding OfMask(NodeId attention, ValueId mask) {
    return MakeRefusal("KV232", "needs a mask that does not count slots, found " + TextOf(mask),
                       graph_, attention);
  }

  std::optional<Finding> JudgeNode(NodeId n) {
    const bool writer = std::any_of(views_.caches.begin(), views_.caches.end(),
                                    [n](const WrittenCache& c) { return c.writer == n; });
    const bool attention =
        std::binary_search(views_.attentions.begin(), views_.attentions.end(), n);
    std::vector<ValueId> operands(graph_.inputs(n).begin(), graph_.inputs(n).end());
    if (writer) operands = {Operand(graph_, n, kUpdate)};
    if (attention) operands = {Operand(graph_, n, kQuery)};
    operands.insert(operands.end(), graph_.captures(n).begin(), graph_.captures(n).end());
    const auto marked = std::find_if(operands.begin(), operands.end(),
                                     [this](ValueId v) { return IsMarkedOrMask(v); });
    if (marked == operands.end()) return std::nullopt;
    for (const ValueId out : graph_.outputs(n)) {
      if (out == kNoValue || views_.views.contains(out)) continue;
      const sym::Form& form = forms_.Of(out);
      const bool through = form.known_rank && !form.opaque;
      if (through && !writer) continue;  // its expression says what it is
      const int32_t type = forms_.ElementType(out);
      const bool index = IsIntegerType(type) || type == onnx::TensorProto::BOOL;
      if (!index || writer || attention) return OfPositions(n, *marked);
      marked_.insert(out);
    }
    if (writer || attention) return OfPositions(n, *marked);
    return std::nullopt;
  }

  bool IsMarkedOrMask(ValueId v) {
    if (IsMarked(v)) return true;
    if (v == kNoValue || views_.views.contains(v) || masks_.empty()) return false;
    const sym::Form& form = forms_.Of(v);
    if (masks_.contains(v)) return true;
    if (!form.known_rank || form.opaque) return false;
    const std::vector<ValueId> sources = sym::SourcesOf(form.element);
    return std::any_of(sources.begin(), sources.end(),
                       [this](ValueId source) { return masks_.contains(source); });
  }

  Finding OfPositions(NodeId n, ValueId operand) {
    return MakeRefusal("KV231", "needs positions that the host gives, found " + TextOf(operand),
                       graph_, n);
  }

  std::optional<Finding> JudgeOutputs() {
    for (const ValueId v : graph_.graph_outputs()) {
      if (!IsMarkedOrMask(v)) continue;
      return MakeRefusal(
          "KV234", fmt::format("needs outputs that do not count slots, found {}", graph_.name(v)),
          graph_, graph_.producer(v));
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const Manifest& manifest_;
  sym::Forms forms_;
  sym::Pool& pool_;
  CacheViews views_;
  absl::flat_hash_set<ValueId> marked_;  // inputs and results that depend on numbers of slots
  absl::flat_hash_set<ValueId> masks_;   // inputs with an entry per slot
  std::set<sym::DimSymbol> slot_dims_;
  std::vector<std::string> by_slot_;
};

}  // namespace

SlotReading ReadSlots(const Graph& model, const Manifest& manifest) {
  return SlotReader(model, manifest).Run();
}

}  // namespace kvlift
