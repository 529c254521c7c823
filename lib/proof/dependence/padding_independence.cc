#include "proof/dependence/padding_independence.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "fmt/format.h"
#include "proof/dependence/token_axes.h"
#include "proof/graphs/operand_places.h"
#include "proof/reading/read_attention.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;
using sym::Kind;

// The element that is being judged: the extents of its indices, and the tokens that the indices
// stand for.
struct Place {
  Facts facts;
  std::vector<Expr> tokens;  // the number of each such token in the step; below 0 in the past
};

// The values that a token may not read outside the attentions: those of later tokens of its step,
// or the results of attentions for any other token.
enum class Barred { kLater, kOthersOfAttention };

class IndependenceReader {
 public:
  IndependenceReader(const GraphPair& pair, const Correspondence& twins,
                     const ReadAttentions& attentions, const Manifest& relation, Barred barred)
      : barred_(barred),
        pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        twins_(twins),
        attentions_(attentions),
        relation_(relation),
        past_(twins.past()),
        new_(twins.new_tokens()),
        axes_(pool_, past_, new_, twins.Normal(twins.total(), Facts{})) {}

  PaddingReach Run() {
    if (barred_ == Barred::kOthersOfAttention) {
      // Without a mask of the host, no token in front of a sequence is hidden.
      const bool hides = std::any_of(attentions_.begin(), attentions_.end(), [&](const auto& one) {
        return HidesByInput(one.second.visible);
      });
      if (!hides) return {};
      FindBehindAttention();
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsInAfter(n)) continue;
      for (size_t k = 0; k < graph_.outputs(n).size(); ++k) Judge(n, static_cast<int>(k));
    }
    for (const std::string& name : ComparedResults(relation_)) {
      // Rows of caches are judged where attentions read them.
      if (barred_ == Barred::kOthersOfAttention && IsPresent(name)) continue;
      if (PaddingReach reach = ReachOf(name); !reach.why.empty()) return reach;
    }
    return {};
  }

 private:
  // Finds the values that are computed from results of attentions.
  void FindBehindAttention() {
    const auto behind = [&](ValueId v) { return v != kNoValue && behind_attention_.contains(v); };
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto inputs = graph_.inputs(n), captures = graph_.captures(n);
      const bool reads = std::any_of(inputs.begin(), inputs.end(), behind) ||
                         std::any_of(captures.begin(), captures.end(), behind);
      for (ValueId v : graph_.outputs(n)) {
        if (v != kNoValue && (reads || attentions_.contains(v))) behind_attention_.insert(v);
      }
    }
  }

  PaddingReach ReachOf(const std::string& name) {
    const ValueId value = pair_.Before(name);
    if (value == kNoValue) return {};
    const sym::Form form = forms_.Of(value);
    if (!form.known_rank) return {fmt::format("the shape of {} is not seen", name), false};
    PaddingReach reach = Of(form.element, form.shape, {});
    if (!reach.why.empty()) reach.why = fmt::format("{}: {}", name, reach.why);
    return reach;
  }

  // Forms look through values that are not opaque; these are judged where they are read.
  void Judge(NodeId n, int output) {
    const ValueId result = graph_.outputs(n)[static_cast<size_t>(output)];
    if (result == kNoValue || !forms_.Of(result).opaque) return;
    if (!Matters(result)) return;
    PaddingReach reach = OfResult(n, output, result);
    if (reach.why.empty() || IsShownInParts(n, output, result)) return;
    if (const AttentionReading* attention = ReadingOf(n, result)) reach = OfAttention(*attention);
    if (!reach.why.empty()) reached_[result] = std::move(reach);
  }

  // Returns true if the statement holds with axes of c * S indices read as the parts of tokens.
  // What is computed from the result then reads it so.
  bool IsShownInParts(NodeId n, int output, ValueId result) {
    const auto is_product = [&](Expr extent) {
      return axes_.AlongOf(twins_.Normal(extent, Facts{}), true) == Along::kTokensAndParts;
    };
    const std::vector<Expr> shape = forms_.Of(result).shape;
    if (std::none_of(shape.begin(), shape.end(), is_product)) return false;
    in_parts_.insert(result);
    if (OfResult(n, output, result).why.empty()) return true;
    in_parts_.erase(result);
    return false;
  }

  const AttentionReading* ReadingOf(NodeId n, ValueId result) {
    if (const auto it = attentions_.find(result); it != attentions_.end()) return &it->second;
    constexpr std::string_view kMakers[] = {"Attention", "MatMul", "Einsum"};
    const bool may = std::any_of(std::begin(kMakers), std::end(kMakers),
                                 [&](std::string_view op) { return graph_.Is(n, op); });
    if (!may) return nullptr;
    reading_ = ReadAttention(forms_, result);
    return reading_.why_not.empty() ? &reading_ : nullptr;
  }

  PaddingReach OfResult(NodeId n, int output, ValueId result) {
    const std::string what =
        fmt::format("{} of {}", pair_.NameOf(result), graph_.node(n).op_type());
    const sym::Form form = forms_.Of(result);
    if (!form.known_rank) return {fmt::format("the shape of {} is not seen", what), false};
    const auto places =
        graph_.captures(n).empty() ? OperandPlaces(forms_, n, output) : std::nullopt;
    if (!places) {
      return {ReadsTokens(n) ? fmt::format("{} may take in several tokens", what) : "",
              MadeOfSizes(n)};
    }
    // A sum of all elements up to the own one, along an axis that is known.
    const bool earlier = barred_ == Barred::kLater;
    if (earlier && SumsEarlierTokens(n, form, in_parts_.contains(result))) {
      return Of(forms_.At(graph_.inputs(n)[0], Own(form.shape.size()), Facts{form.shape}),
                form.shape, {}, in_parts_.contains(result));
    }
    for (const OperandPlace& place : *places) {
      const ValueId operand = graph_.inputs(n)[static_cast<size_t>(place.input)];
      // An index that an operand chooses reads one element of those along an axis.
      const bool chooses = absl::StartsWith(graph_.node(n).op_type(), "Gather");
      for (Expr extent : place.taken) {
        const Along along = axes_.AlongOf(twins_.Normal(extent, Facts{}));
        if (chooses || along == Along::kNoTokens) continue;
        return {fmt::format("{} takes in all tokens", what),
                TakesSamePadding(n, place.taken, along)};
      }
      const Facts facts{Joined(form.shape, place.taken)};
      PaddingReach reach = Of(forms_.At(operand, place.at, facts), form.shape, place.taken,
                              in_parts_.contains(result));
      if (!reach.why.empty()) return reach;
    }
    return {};
  }

  // Returns true for a sum of all elements up to the own one along an axis on which no later token
  // stands in front of the own one. The parts of sequences on one axis do.
  bool SumsEarlierTokens(NodeId n, const sym::Form& form, bool in_parts) {
    if (!graph_.Is(n, "CumSum") || IntAttribute(graph_.node(n), "reverse", 0) != 0) return false;
    const auto axis = forms_.Elements(graph_.inputs(n)[1]);
    if (!axis || axis->size() != 1 || axis->front()->kind() != Kind::kInteger) return false;
    const auto rank = static_cast<int64_t>(form.shape.size());
    const int64_t at = axis->front()->value() + (axis->front()->value() < 0 ? rank : 0);
    if (at < 0 || at >= rank) return false;
    const Along along = axes_.AlongOf(twins_.Normal(form.shape[at], Facts{}), in_parts);
    return along != Along::kSequencesAndTokens && along != Along::kUnknown;
  }

  // Returns true if what a node takes in along these axes changes even if the source is given the
  // same padding tokens (PaddingReach::with_same_padding). `along` is what the first axis of tokens
  // stands for.
  bool TakesSamePadding(NodeId n, absl::Span<const Expr> taken, Along along) const {
    const bool of_query = std::all_of(taken.begin(), taken.end(), [&](Expr extent) {
      const Along axis = axes_.AlongOf(twins_.Normal(extent, Facts{}));
      return axis == Along::kKeys || axis == Along::kNoTokens;
    });
    if (of_query && CountsVisibleKeys(n)) return false;
    if (MadeOfSizes(n)) return true;
    return along == Along::kKeys && !(WeighsRows(n) && HasMaskOfKeys());
  }

  // Returns true if the operands of a node are numbers that sizes alone determine, such as the
  // positions of the tokens: a result that is computed from all of them depends on their number
  // only.
  bool MadeOfSizes(NodeId n) const {
    const auto inputs = graph_.inputs(n);
    return graph_.captures(n).empty() && std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
             if (v == kNoValue || graph_.constant(v) != nullptr) return true;
             const sym::Form& form = forms_.Of(v);
             return form.known_rank && sym::LoadsOf(form.element).empty();
           });
  }

  // Returns true for the sum of a mask that sizes alone determine. Over the keys of each query,
  // exporters find queries without keys by it; a mask that an attention reads hides later tokens.
  bool CountsVisibleKeys(NodeId n) const {
    if (!graph_.Is(n, "ReduceSum") || !MadeOfSizes(n)) return false;
    const sym::Form& form = forms_.Of(graph_.inputs(n)[0]);
    return form.known_rank && form.element->is_predicate();
  }

  // Returns true for a product whose left operand is made from a softmax nearby, as the one of an
  // attention that is not read.
  bool WeighsRows(NodeId n) const {
    constexpr int kMostNodes = 24;
    if (!graph_.Is(n, "MatMul")) return false;
    std::vector<ValueId> open = {graph_.inputs(n)[0]};
    for (int k = 0; k < kMostNodes && !open.empty(); ++k) {
      const NodeId made = open.back() == kNoValue ? kNoNode : graph_.producer(open.back());
      open.pop_back();
      if (made == kNoNode || graph_.Is(made, "MatMul")) continue;
      if (graph_.Is(made, "Softmax")) return true;
      for (ValueId v : graph_.inputs(made)) {
        if (v != kNoValue && forms_.ElementType(v) != onnx::TensorProto::INT64) open.push_back(v);
      }
    }
    return false;
  }

  // Returns true if the host feeds a mask with a column for each key, which hides padding tokens
  // in later steps, too.
  bool HasMaskOfKeys() const {
    return std::any_of(relation_.inputs.begin(), relation_.inputs.end(),
                       [&](const ManifestInput& input) {
                         const ValueId v = pair_.Before(NameInSource(input));
                         if (v == kNoValue || !forms_.Of(v).known_rank) return false;
                         const std::vector<Expr>& shape = forms_.Of(v).shape;
                         return std::any_of(shape.begin(), shape.end(), [&](Expr extent) {
                           return axes_.AlongOf(twins_.Normal(extent, Facts{})) == Along::kKeys;
                         });
                       });
  }

  PaddingReach OfAttention(const AttentionReading& reading) {
    const std::vector<Expr>& extents = reading.extents.extents;
    if (extents.size() < 5) return {"an attention whose extents are not seen", false};
    const Expr own = pool_.Index(2), key = pool_.Index(3);
    for (const auto& [element, last] :
         {std::pair(reading.query, extents[4]), std::pair(reading.key, extents[4]),
          std::pair(reading.value, reading.size_of_value)}) {
      std::vector<Expr> shape(extents.begin(), extents.begin() + 4);
      shape.push_back(last);
      // The tokens behind the rows of a window depend on how many it has dropped.
      const bool window = axes_.AlongOf(twins_.Normal(extents[3], Facts{})) == Along::kUnknown;
      if (barred_ == Barred::kOthersOfAttention && window) {
        if (element != reading.query) continue;
        shape[3] = pool_.Integer(1);
      }
      if (PaddingReach reach = Of(element, shape, {}); !reach.why.empty()) return reach;
    }
    if (barred_ == Barred::kOthersOfAttention) {
      const Along keys = axes_.AlongOf(twins_.Normal(extents[3], Facts{}));
      if (keys == Along::kNoTokens || HidesByInput(reading.visible)) return {};
      return {"an attention sees padding tokens", false};
    }
    const std::vector<Expr> shape(extents.begin(), extents.begin() + 4);
    for (Expr bias : reading.bias) {
      if (PaddingReach reach = Of(bias, shape, {}); !reach.why.empty()) return reach;
    }
    if (reading.sink != nullptr) {
      const std::vector<Expr> rows(extents.begin(), extents.begin() + 3);
      if (PaddingReach reach = Of(reading.sink, rows, {}); !reach.why.empty()) return reach;
    }
    if (PaddingReach reach = Of(reading.visible, shape, {}); !reach.why.empty()) return reach;
    const Facts facts = Normal(shape);
    const Expr earlier = pool_.Le(key, pool_.Add(past_, own), facts);
    const Expr visible = twins_.Normal(reading.visible, facts);
    if (pool_.Assume(earlier, visible, true, facts)->is_integer(1)) return {};
    return {"a token sees later ones of its step", false};
  }

  bool IsPresent(const std::string& name) const {
    return std::any_of(relation_.caches.begin(), relation_.caches.end(),
                       [&](const ManifestCache& cache) { return cache.source.output == name; });
  }

  // Returns true if an input of the host, such as a padding mask, says which keys are visible.
  bool HidesByInput(Expr visible) const {
    const std::vector<Expr> loads = sym::LoadsOf(visible);
    return std::any_of(loads.begin(), loads.end(), [&](Expr load) {
      return graph_.is_graph_input(load->source()) && sym::ContainsIndex(load, 3);
    });
  }

  // Returns true if reading the value at other tokens makes a difference.
  bool Matters(ValueId v) const {
    return barred_ == Barred::kLater || behind_attention_.contains(v);
  }

  bool ReadsTokens(NodeId n) {
    const auto reads = [&](ValueId v) {
      if (v == kNoValue || graph_.constant(v) != nullptr) return false;
      const sym::Form form = forms_.Of(v);
      if (!form.known_rank || reached_.contains(v)) return true;
      const auto is_token = [&](Expr extent) {
        return axes_.AlongOf(twins_.Normal(extent, Facts{})) != Along::kNoTokens;
      };
      return std::any_of(form.shape.begin(), form.shape.end(), is_token) ||
             !Of(form.element, form.shape, {}).why.empty();
    };
    const auto inputs = graph_.inputs(n), captures = graph_.captures(n);
    return std::any_of(inputs.begin(), inputs.end(), reads) ||
           std::any_of(captures.begin(), captures.end(), reads);
  }

  static std::vector<Expr> Joined(std::vector<Expr> shape, const std::vector<Expr>& taken) {
    shape.insert(shape.end(), taken.begin(), taken.end());
    return shape;
  }

  Facts Normal(const std::vector<Expr>& shape) const {
    Facts facts;
    for (Expr extent : shape) facts.extents.push_back(twins_.Normal(extent, Facts{}));
    return facts;
  }

  // Says why an element of a value of this shape may differ in a step of fewer tokens. Indices
  // behind those of the shape have the extents `taken`. in_parts: see IsShownInParts.
  PaddingReach Of(Expr e, const std::vector<Expr>& shape, const std::vector<Expr>& taken,
                  bool in_parts = false) {
    if (e == nullptr) return {"an element is not seen", false};
    Place place{Normal(Joined(shape, taken)), {}};
    e = twins_.Normal(e, place.facts);
    sym::Pool::Substitution split;
    for (size_t k = 0; k < shape.size(); ++k) {
      const Expr extent = place.facts.extents[k];
      const Along along = axes_.AlongOf(extent, in_parts);
      if (along == Along::kUnknown) {
        return {fmt::format("the extent {} is not one of tokens, keys or sequences", Text(extent)),
                false};
      }
      if (along == Along::kSequencesAndTokens || along == Along::kTokensAndParts) {
        // The index is split into one for the token and one for the sequence or the part.
        const auto at = static_cast<int>(place.facts.extents.size());
        const Expr count = pool_.FloorDiv(extent, new_, Facts{});
        const bool parts = along == Along::kTokensAndParts;
        const Expr token = pool_.Index(parts ? at : at + 1);
        const Expr other = pool_.Index(parts ? at + 1 : at);
        place.facts.extents.push_back(parts ? new_ : count);
        place.facts.extents.push_back(parts ? count : new_);
        split.indices.resize(std::max(split.indices.size(), k + 1), nullptr);
        split.indices[k] = parts ? pool_.Add(pool_.Mul(token, count), other)
                                 : pool_.Add(pool_.Mul(other, new_), token);
        place.tokens.push_back(token);
      } else if (along != Along::kNoTokens) {
        place.tokens.push_back(
            axes_.TokenAt(along, pool_.Index(static_cast<int>(k)), extent, place.facts));
      }
    }
    if (!split.indices.empty()) e = pool_.Substitute(e, split, place.facts);
    return OfRead(e, place, pool_.True());
  }

  // Judges what an expression reads wherever `known` holds.
  PaddingReach OfRead(Expr e, const Place& place, Expr known) {
    if (e->kind() == Kind::kSelect) {
      const Expr c = e->args()[0];
      PaddingReach reach = OfRead(c, place, known);
      if (reach.why.empty()) reach = OfRead(e->args()[1], place, pool_.And(known, c));
      if (reach.why.empty()) reach = OfRead(e->args()[2], place, pool_.And(known, pool_.Not(c)));
      return reach;
    }
    sym::Pool::Substitution loads;
    for (Expr load : sym::OuterLoadsOf(e)) {
      if (PaddingReach reach = OfLoad(load, place, known); !reach.why.empty()) return reach;
      loads.atoms[load] =
          pool_.Load(load->source(), std::vector<Expr>(load->args().size(), pool_.Integer(0)));
    }
    const Expr rest = loads.atoms.empty() ? e : pool_.Substitute(e, loads, place.facts);
    if (barred_ != Barred::kLater) return {};
    if (axes_.HoldsUnknownSize(rest)) {
      return {fmt::format("{} depends on a size that only running the model tells", Text(e)), true};
    }
    if (!axes_.CountsTokens(rest)) return {};
    return {fmt::format("{} depends on the number of tokens", Text(e)), true};
  }

  PaddingReach OfLoad(Expr load, const Place& place, Expr known) {
    const ValueId source = load->source();
    if (const auto it = reached_.find(source); it != reached_.end()) return it->second;
    if (!Matters(source)) return {};
    const sym::Form form = forms_.Of(source);
    for (size_t k = 0; k < load->args().size(); ++k) {
      const Expr extent = twins_.Normal(form.shape[k], Facts{});
      const Along along = axes_.AlongOf(extent, in_parts_.contains(source));
      if (along == Along::kUnknown) {
        return {fmt::format("the extent {} is not one of tokens, keys or sequences", Text(extent)),
                false};
      }
      const Expr at = load->args()[k];
      if (along == Along::kSequencesAndTokens && IsOwnRow(at, place, known)) continue;
      const Expr token = axes_.TokenAt(along, at, extent, place.facts);
      if (token == nullptr || along != Along::kSequencesAndTokens) {
        if (PaddingReach reach = OfRead(at, place, known); !reach.why.empty()) return reach;
      } else {
        const Expr sequence = pool_.FloorDiv(at, new_, place.facts);
        for (Expr part : {token, sequence}) {
          if (PaddingReach reach = OfRead(part, place, known); !reach.why.empty()) return reach;
        }
      }
      if (token != nullptr && !IsReal(token, place, known)) {
        const bool later = barred_ == Barred::kLater;
        return {fmt::format("{} may be {} token", Text(load), later ? "a later" : "another"),
                false};
      }
    }
    return {};
  }

  // Returns true if an index on an axis of sequences and tokens is that of one of the element's own
  // tokens, in a sequence whose number does not depend on S.
  bool IsOwnRow(Expr at, const Place& place, Expr known) const {
    return std::any_of(place.tokens.begin(), place.tokens.end(), [&](Expr own) {
      const Expr start = pool_.Sub(at, own);
      const Expr sequence = pool_.FloorDiv(start, new_, place.facts);
      return pool_.Mul(sequence, new_) == start && !axes_.CountsTokens(sequence) &&
             sym::LoadsOf(sequence).empty() &&
             Holds(pool_.Le(pool_.Integer(0), own, place.facts), place, known);
    });
  }

  bool Holds(Expr condition, const Place& place, Expr known) const {
    return condition->is_integer(1) ||
           pool_.Assume(condition, known, true, place.facts)->is_integer(1);
  }

  std::vector<Expr> Own(size_t rank) const {
    std::vector<Expr> indices;
    for (size_t k = 0; k < rank; ++k) indices.push_back(pool_.Index(static_cast<int>(k)));
    return indices;
  }

  // Returns true if a token may be read: it is the first of the step, of the past, or not behind
  // one of the element's own tokens. Results of attentions may be read at tokens of the past and at
  // the element's own token, and at the last token where the element has no token of its own.
  bool IsReal(Expr token, const Place& place, Expr known) const {
    if (barred_ == Barred::kOthersOfAttention) {
      const Expr last = pool_.Sub(new_, pool_.Integer(1));
      return Holds(pool_.Lt(token, pool_.Integer(0), place.facts), place, known) ||
             (place.tokens.empty() && token == last) ||
             std::any_of(place.tokens.begin(), place.tokens.end(), [&](Expr own) {
               return Holds(pool_.Eq(token, own, place.facts), place, known);
             });
    }
    return Holds(pool_.Le(token, pool_.Integer(0), place.facts), place, known) ||
           std::any_of(place.tokens.begin(), place.tokens.end(), [&](Expr own) {
             return Holds(pool_.Le(token, own, place.facts), place, known);
           });
  }

  std::string Text(Expr e) const { return sym::ToString(e, &graph_); }

  const Barred barred_;
  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  const ReadAttentions& attentions_;
  const Manifest& relation_;
  const Expr past_, new_;
  const TokenAxes axes_;
  AttentionReading reading_;  // the last one that ReadingOf read
  absl::flat_hash_set<ValueId> behind_attention_;
  // Values whose axes of c * S indices hold the parts of tokens (IsShownInParts).
  absl::flat_hash_set<ValueId> in_parts_;
  // Values for which the statement is not shown, and why.
  absl::flat_hash_map<ValueId, PaddingReach> reached_;
};

// Judges a step whose tokens have a name.
PaddingReach Reach(const GraphPair& pair, const Correspondence& twins,
                   const ReadAttentions& attentions, const Manifest& relation, Barred barred) {
  const Expr tokens = twins.new_tokens();
  if (tokens == nullptr || twins.past() == nullptr) {
    return {"the number of tokens is not seen", false};
  }
  if (tokens->is_integer(1)) return {};
  if (tokens->kind() != Kind::kDim) return {"the number of tokens has no name", false};
  return IndependenceReader(pair, twins, attentions, relation, barred).Run();
}

}  // namespace

PaddingReach ReachOfPadding(const GraphPair& pair, const Correspondence& twins,
                            const ReadAttentions& attentions, const Manifest& relation) {
  return Reach(pair, twins, attentions, relation, Barred::kLater);
}

PaddingReach ReachOfRowsWithoutKeys(const GraphPair& pair, const Correspondence& twins,
                                    const ReadAttentions& attentions, const Manifest& relation) {
  return Reach(pair, twins, attentions, relation, Barred::kOthersOfAttention);
}

}  // namespace kvlift
