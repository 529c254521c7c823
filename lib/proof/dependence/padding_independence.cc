#include "proof/dependence/padding_independence.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "fmt/format.h"
#include "proof/dependence/token_reads.h"
#include "proof/graphs/operand_places.h"
#include "proof/reading/read_attention.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;
using sym::Kind;

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
        reads_(pair, twins, barred) {}

  PaddingReach Run() {
    if (barred_ == Barred::kOthersOfAttention) {
      // Without a mask of the host, no token in front of a sequence is hidden.
      const bool hides = std::any_of(attentions_.begin(), attentions_.end(), [&](const auto& one) {
        return HidesByInput(one.second.visible);
      });
      if (!hides) return {};
      reads_.FindBehindAttention(attentions_);
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
  PaddingReach ReachOf(const std::string& name) {
    const ValueId value = pair_.Before(name);
    if (value == kNoValue) return {};
    const sym::Form form = forms_.Of(value);
    if (!form.known_rank) return {fmt::format("the shape of {} is not seen", name), false};
    PaddingReach reach = reads_.Of(form.element, form.shape, {});
    if (!reach.why.empty()) reach.why = fmt::format("{}: {}", name, reach.why);
    return reach;
  }

  // Forms look through values that are not opaque; these are judged where they are read.
  void Judge(NodeId n, int output) {
    const ValueId result = graph_.outputs(n)[static_cast<size_t>(output)];
    if (result == kNoValue || !forms_.Of(result).opaque) return;
    if (!reads_.Matters(result)) return;
    PaddingReach reach = OfResult(n, output, result);
    if (reach.why.empty() || IsShownInParts(n, output, result)) return;
    if (const AttentionReading* attention = ReadingOf(n, result)) reach = OfAttention(*attention);
    if (!reach.why.empty()) reads_.SetNotShown(result, std::move(reach));
  }

  // Returns true if the statement holds with axes of c * S indices read as the parts of tokens.
  // What is computed from the result then reads it so.
  bool IsShownInParts(NodeId n, int output, ValueId result) {
    const auto is_product = [&](Expr extent) {
      return reads_.AlongOf(extent, true) == Along::kTokensAndParts;
    };
    const std::vector<Expr> shape = forms_.Of(result).shape;
    if (std::none_of(shape.begin(), shape.end(), is_product)) return false;
    reads_.ReadInParts(result, true);
    if (OfResult(n, output, result).why.empty()) return true;
    reads_.ReadInParts(result, false);
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
    if (earlier && SumsEarlierTokens(n, form, reads_.IsReadInParts(result))) {
      return reads_.Of(forms_.At(graph_.inputs(n)[0], Own(form.shape.size()), Facts{form.shape}),
                       form.shape, {}, reads_.IsReadInParts(result));
    }
    for (const OperandPlace& place : *places) {
      const ValueId operand = graph_.inputs(n)[static_cast<size_t>(place.input)];
      // An index that an operand chooses reads one element of those along an axis.
      const bool chooses = absl::StartsWith(graph_.node(n).op_type(), "Gather");
      for (Expr extent : place.taken) {
        const Along along = reads_.AlongOf(extent);
        if (chooses || along == Along::kNoTokens) continue;
        return {fmt::format("{} takes in all tokens", what),
                TakesSamePadding(n, place.taken, along)};
      }
      const Facts facts{TokenReads::Joined(form.shape, place.taken)};
      PaddingReach reach = reads_.Of(forms_.At(operand, place.at, facts), form.shape, place.taken,
                                     reads_.IsReadInParts(result));
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
    const Along along = reads_.AlongOf(form.shape[at], in_parts);
    return along != Along::kSequencesAndTokens && along != Along::kUnknown;
  }

  // Returns true if what a node takes in along these axes changes even if the source is given the
  // same padding tokens (PaddingReach::with_same_padding). `along` is what the first axis of tokens
  // stands for.
  bool TakesSamePadding(NodeId n, absl::Span<const Expr> taken, Along along) const {
    const bool of_query = std::all_of(taken.begin(), taken.end(), [&](Expr extent) {
      const Along axis = reads_.AlongOf(extent);
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

  // Returns true if the scores of a softmax are numbers of a quantiser, perhaps moved: its lowest
  // number stands for what a mask in front of it hides, and has a weight.
  bool RoundsScores(NodeId softmax) const {
    constexpr int kMostNodes = 16;
    ValueId scores = graph_.inputs(softmax)[0];
    for (int k = 0; k < kMostNodes && scores != kNoValue; ++k) {
      const NodeId made = graph_.producer(scores);
      if (made == kNoNode) return false;
      if (graph_.Is(made, "DequantizeLinear")) return true;
      // Masks stand at nodes of several real operands, and hide what is rounded in front of them.
      ValueId only = kNoValue;
      for (ValueId v : graph_.inputs(made)) {
        const bool real =
            v != kNoValue && graph_.constant(v) == nullptr && IsFloatType(forms_.ElementType(v));
        if (real && only != kNoValue) return false;
        if (real) only = v;
      }
      if (graph_.Is(made, "Where") || graph_.Is(made, "MatMul")) return false;
      scores = only;
    }
    return false;
  }

  // Returns true for a product whose left operand is made from a softmax nearby, as the one of an
  // attention that is not read, whose scores may hide keys.
  bool WeighsRows(NodeId n) const {
    constexpr int kMostNodes = 24;
    if (!graph_.Is(n, "MatMul")) return false;
    std::vector<ValueId> open = {graph_.inputs(n)[0]};
    for (int k = 0; k < kMostNodes && !open.empty(); ++k) {
      const NodeId made = open.back() == kNoValue ? kNoNode : graph_.producer(open.back());
      open.pop_back();
      if (made == kNoNode || graph_.Is(made, "MatMul")) continue;
      if (graph_.Is(made, "Softmax")) return !RoundsScores(made);
      for (ValueId v : graph_.inputs(made)) {
        if (v != kNoValue && forms_.ElementType(v) != onnx::TensorProto::INT64) open.push_back(v);
      }
    }
    return false;
  }

  // Returns true if the host feeds a mask with a column for each key, which hides padding tokens
  // in later steps, too.
  bool HasMaskOfKeys() const {
    return std::any_of(
        relation_.inputs.begin(), relation_.inputs.end(), [&](const ManifestInput& input) {
          const ValueId v = pair_.Before(NameInSource(input));
          if (v == kNoValue || !forms_.Of(v).known_rank) return false;
          const std::vector<Expr>& shape = forms_.Of(v).shape;
          return std::any_of(shape.begin(), shape.end(),
                             [&](Expr extent) { return reads_.AlongOf(extent) == Along::kKeys; });
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
      const bool window = reads_.AlongOf(extents[3]) == Along::kUnknown;
      if (barred_ == Barred::kOthersOfAttention && window) {
        if (element != reading.query) continue;
        shape[3] = pool_.Integer(1);
      }
      if (PaddingReach reach = reads_.Of(element, shape, {}); !reach.why.empty()) return reach;
    }
    if (barred_ == Barred::kOthersOfAttention) {
      const Along keys = reads_.AlongOf(extents[3]);
      if (keys == Along::kNoTokens || HidesByInput(reading.visible)) return {};
      return {"an attention sees padding tokens", false};
    }
    const std::vector<Expr> shape(extents.begin(), extents.begin() + 4);
    for (Expr bias : reading.bias) {
      if (PaddingReach reach = reads_.Of(bias, shape, {}); !reach.why.empty()) return reach;
    }
    if (reading.sink != nullptr) {
      const std::vector<Expr> rows(extents.begin(), extents.begin() + 3);
      if (PaddingReach reach = reads_.Of(reading.sink, rows, {}); !reach.why.empty()) return reach;
    }
    PaddingReach reach = reads_.Of(reading.visible, shape, {});
    if (!reach.why.empty()) return reach;
    const Facts facts = reads_.Normal(shape);
    const Expr earlier = pool_.Le(key, pool_.Add(twins_.past(), own), facts);
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

  bool ReadsTokens(NodeId n) {
    const auto reads = [&](ValueId v) {
      if (v == kNoValue || graph_.constant(v) != nullptr) return false;
      const sym::Form form = forms_.Of(v);
      if (!form.known_rank || reads_.IsNotShown(v)) return true;
      const auto is_token = [&](Expr extent) { return reads_.AlongOf(extent) != Along::kNoTokens; };
      return std::any_of(form.shape.begin(), form.shape.end(), is_token) ||
             !reads_.Of(form.element, form.shape, {}).why.empty();
    };
    const auto inputs = graph_.inputs(n), captures = graph_.captures(n);
    return std::any_of(inputs.begin(), inputs.end(), reads) ||
           std::any_of(captures.begin(), captures.end(), reads);
  }

  std::vector<Expr> Own(size_t rank) const {
    std::vector<Expr> indices;
    for (size_t k = 0; k < rank; ++k) indices.push_back(pool_.Index(static_cast<int>(k)));
    return indices;
  }

  const Barred barred_;
  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  const ReadAttentions& attentions_;
  const Manifest& relation_;
  TokenReads reads_;
  AttentionReading reading_;  // the last one that ReadingOf read
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
