#include "rewrite/recognise/candidates.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/operators/operator_changes.h"
#include "rewrite/lower/key_value_cache.h"
#include "rewrite/recognise/append.h"
#include "rewrite/recognise/attention/attention_search.h"
#include "rewrite/recognise/attention/match.h"
#include "rewrite/recognise/near_misses.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

constexpr size_t kMaxNodesOfFlow = 4000;

class Finder {
 public:
  explicit Finder(sym::Forms& forms) : forms_(forms), graph_(forms.graph()) {}

  Candidates Run() {
    CollectNewLengths();
    for (ValueId output : graph_.graph_outputs()) {
      const int rank = RankOf(forms_, output);
      if (rank >= kMinCacheRank || rank < 0) Consider(output, rank);
      if (rank == 2) ConsiderFlat(output);
    }
    ReportNearMisses(forms_, taken_, paired_, &found_);
    return std::move(found_);
  }

 private:
  bool MayBePast(ValueId input, ValueId present, int rank) {
    if (!graph_.is_graph_input(input) || taken_.contains(input)) return false;
    const int own = RankOf(forms_, input);
    if (own < kMinCacheRank || (rank >= 0 && own != rank)) return false;
    const int32_t type = graph_.type(present).elem_type;
    return type == 0 || graph_.type(input).elem_type == type;
  }

  // A present is longer than its past along one axis at most. A buffer of fixed capacity is not as
  // long as the new tokens, and neither is a past of which the present has a part.
  bool ShapesFit(ValueId input, ValueId present,
                 const absl::flat_hash_set<sym::DimSymbol>& new_lengths) {
    const auto axes = DifferingAxes(forms_, input, present);
    if (!axes) return true;
    const auto is_new = [&](Expr dim) {
      return dim->kind() == Kind::kDim && new_lengths.contains(dim->dim());
    };
    const sym::Form form = forms_.Of(input);
    if (axes->empty()) return std::none_of(form.shape.begin(), form.shape.end(), is_new);
    if (axes->size() > 1) return false;
    const sym::Form& larger = forms_.Of(present);
    const int axis = axes->front();
    return !is_new(form.shape[axis]) || !larger.known_rank ||
           forms_.pool().ProveNonNegative(forms_.pool().Sub(larger.shape[axis], form.shape[axis]),
                                          sym::Facts{});
  }

  // Collects symbols that may be the number of new tokens: what caches grow by or TensorScatter
  // writes (new_lengths_), and also the lengths of integer inputs of rank 2 (token_lengths_), among
  // which may be the width of a mask.
  void CollectNewLengths() {
    // Layers share their shapes: one value of each shape stands for all.
    const auto representatives = [&](absl::Span<const ValueId> values) {
      std::vector<ValueId> result;
      absl::flat_hash_set<std::pair<std::vector<Expr>, bool>> seen;
      for (ValueId v : values) {
        const sym::Form& form = forms_.Of(v);
        if (!form.known_rank || RankOf(forms_, v) < kMinCacheRank) continue;
        if (seen.insert({form.shape, form.opaque}).second) result.push_back(v);
      }
      return result;
    };
    const std::vector<ValueId> inputs = representatives(graph_.graph_inputs());
    for (ValueId output : representatives(graph_.graph_outputs())) {
      for (ValueId input : inputs) {
        const auto axes = DifferingAxes(forms_, input, output);
        if (!axes || axes->size() != 1) continue;
        const Expr grown = forms_.pool().Sub(forms_.Of(output).shape[axes->front()],
                                             forms_.Of(input).shape[axes->front()]);
        if (grown->kind() == Kind::kDim) new_lengths_.insert(grown->dim());
      }
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!graph_.Is(n, "TensorScatter")) continue;
      const sym::Form& update = forms_.Of(graph_.inputs(n)[1]);
      const auto rank = static_cast<int64_t>(update.shape.size());
      const int64_t axis = IntAttribute(graph_.node(n), "axis", -2);
      if (!update.known_rank || axis < -rank || axis >= rank) continue;
      const Expr length = update.shape[axis < 0 ? axis + rank : axis];
      if (length->kind() == Kind::kDim) new_lengths_.insert(length->dim());
    }
    token_lengths_ = new_lengths_;
    for (ValueId input : graph_.graph_inputs()) {
      if (RankOf(forms_, input) != 2 || !IsIntegerType(graph_.type(input).elem_type)) continue;
      const Expr length = forms_.Of(input).shape.back();
      if (length->kind() == Kind::kDim) token_lengths_.insert(length->dim());
    }
  }

  void Consider(ValueId output, int rank) {
    if (ConsiderTensorScatter(output, rank)) return;
    if (ConsiderForm(output, rank) || ConsiderOperator(output, rank)) return;
    ConsiderFlow(output, rank);
  }

  // A growing tensor of rank 2, such as token ids, may be fed back as caches are.
  void ConsiderFlat(ValueId output) {
    if (!forms_.Of(output).known_rank) return;
    for (ValueId source : sym::SourcesOf(forms_.Of(output).element)) {
      if (!graph_.is_graph_input(source) || taken_.contains(source) ||
          RankOf(forms_, source) != 2) {
        continue;
      }
      const auto append = ReadAppend(forms_, source, output);
      if (!append || append->reversed) continue;
      return Add({source, output}, DescribeCandidate(forms_, {source, output}));
    }
  }

  // Finds a TensorScatter, or a chain of them, that writes into a graph input; looks through nodes
  // that only rename a value or move its axes.
  bool ConsiderTensorScatter(ValueId output, int rank) {
    const NodeId n = graph_.producer(SeeThrough(output));
    if (n == kNoNode || !graph_.Is(n, "TensorScatter")) return false;
    NodeId first = n;
    for (NodeId m = n; m != kNoNode && graph_.Is(m, "TensorScatter");) {
      first = m;
      m = graph_.producer(SeeThrough(graph_.inputs(m)[0]));
    }
    const ValueId past = SeeThroughReordering(graph_.inputs(first)[0]);
    if (!MayBePast(past, output, rank)) return false;
    Candidate c;
    c.kind = UpdateKind::kTensorScatter;
    c.converted = true;
    c.axis = static_cast<int>(IntAttribute(graph_.node(n), "axis", -2));
    const int written = RankOf(forms_, graph_.inputs(n)[0]);
    if (c.axis < 0) c.axis += written;
    // A Reshape may merge axes in front of the rows before they are written.
    c.axis += RankOf(forms_, past) - written;
    c.if_unmatched = MakeFinding(
        "KV222", fmt::format("{} is written by TensorScatter already", graph_.name(output)), graph_,
        {n}, {past, output});
    Add({past, output}, std::move(c));
    return true;
  }

  // A cache whose sequences are reordered (beam search) is still the same cache.
  ValueId SeeThroughReordering(ValueId v) const {
    v = SeeThrough(v);
    const NodeId n = graph_.producer(v);
    const bool reorders = n != kNoNode && graph_.Is(n, "Gather");
    return reorders ? SeeThrough(graph_.inputs(n)[0]) : v;
  }

  ValueId SeeThrough(ValueId v) const {
    for (NodeId n = graph_.producer(v); n != kNoNode; n = graph_.producer(v)) {
      const bool view = graph_.Is(n, "Identity") || graph_.Is(n, "Transpose") ||
                        graph_.Is(n, "Squeeze") || graph_.Is(n, "Unsqueeze") ||
                        graph_.Is(n, "Reshape");
      if (!view) return v;
      v = graph_.inputs(n)[0];
    }
    return v;
  }

  // Finds a graph input of the same rank that the output's element loads from. If there are
  // several, it takes one whose elements stay in place, else one of the same shape.
  bool ConsiderForm(ValueId output, int rank) {
    const sym::Form& form = forms_.Of(output);
    if (!form.known_rank || form.opaque) return false;
    std::vector<ValueId> pasts;
    for (ValueId source : sym::SourcesOf(form.element)) {
      if (!MayBePast(source, output, rank) || source == output) continue;
      if (ShapesFit(source, output, new_lengths_) || KeepsRows(source, form)) {
        pasts.push_back(source);
      }
    }
    if (pasts.empty()) return false;
    // The output is the input, such as the cache of a cross-attention.
    if (pasts.size() == 1 && StaysInPlace(form.element, pasts.front(), form.shape)) {
      paired_.insert(output);
      return true;
    }
    auto at = std::find_if(pasts.begin(), pasts.end(),
                           [&](ValueId past) { return !MovesPast(past, form.element); });
    if (at == pasts.end()) {
      at = std::find_if(pasts.begin(), pasts.end(),
                        [&](ValueId past) { return forms_.Of(past).shape == form.shape; });
    }
    const ValueId past = at != pasts.end() ? *at : pasts.front();
    if (HasNamesake(graph_, {past, output})) return paired_.insert(output).second;
    Add({past, output}, DescribeCandidate(forms_, {past, output}));
    return true;
  }

  // Returns true if e is the past's element at the place of the output's.
  bool StaysInPlace(Expr e, ValueId past, const std::vector<Expr>& shape) {
    sym::Pool& pool = forms_.pool();
    const int rank = static_cast<int>(shape.size());
    return e == pool.Load(past, Indices(pool, rank)) || e == pool.Load(past, Indices(pool, shape));
  }

  // Returns true if some elements of the output are those of the input at the same place, so that
  // the input is its past even where the number of new rows is not read.
  bool KeepsRows(ValueId past, const sym::Form& form) {
    const Expr e = form.element;
    return e->kind() == Kind::kSelect && (StaysInPlace(e->args()[1], past, form.shape) ||
                                          StaysInPlace(e->args()[2], past, form.shape));
  }

  // Finds an operator or a control-flow node that takes the past and gives the present.
  bool ConsiderOperator(ValueId output, int rank) {
    const ValueId made = SeeThrough(output);
    const NodeId n = graph_.producer(made);
    if (n == kNoNode) return false;
    if (const ValueId past = PackedPast(graph_, made); past != kNoValue) {
      return ConsiderPacked(past, output, n);
    }
    const bool branches = !graph_.captures(n).empty() || graph_.Is(n, "If");
    const bool fused = graph_.Is(n, "Attention") || !IsDefaultDomain(graph_.node(n).domain());
    if (IsStateOperator(graph_, n)) return ConsiderStateOperator(output, n);
    if (!branches && !fused && !IsScatter(graph_, n)) return false;
    // The first of several outputs of an operator is its result, not a present.
    if (!branches && graph_.outputs(n).size() > 1 && graph_.output_index(made) == 0) return false;
    auto inputs = branches ? graph_.captures(n) : graph_.inputs(n);
    constexpr size_t kAttentionPast = 4;  // past_key, past_value
    if (graph_.Is(n, "Attention")) inputs.remove_prefix(std::min(inputs.size(), kAttentionPast));
    for (ValueId read : inputs) {
      if (read == kNoValue) continue;
      const ValueId input = SeeThrough(read);
      if (!MayBePast(input, output, rank) || !ShapesFit(input, output, new_lengths_)) continue;
      Candidate c;
      c.kind = branches ? UpdateKind::kConcat : fused ? UpdateKind::kFused : UpdateKind::kScatter;
      c.hidden = branches || fused;
      c.if_unmatched = MakeFinding(branches ? "KV207"
                                   : fused  ? "KV206"
                                            : "KV204",
                                   WhyNotOperator(n, input, output, branches, fused), graph_, {n},
                                   {input, output});
      Add({input, output}, std::move(c));
      return true;
    }
    return false;
  }

  // KeyValueCache nodes write into one tensor, one after the other.
  bool ConsiderPacked(ValueId past, ValueId output, NodeId n) {
    Candidate c;
    c.kind = UpdateKind::kFused;
    c.hidden = true;
    c.if_unmatched = MakeFinding("KV206", WhyNotOperator(n, past, output, false, true), graph_, {n},
                                 {past, output});
    Add({past, output}, std::move(c));
    return true;
  }

  // Output 1 of a state operator is the next state.
  bool ConsiderStateOperator(ValueId output, NodeId n) {
    const size_t operand = StateOperandOf(graph_, n);
    const auto inputs = graph_.inputs(n);
    if (graph_.output_index(SeeThrough(output)) != 1 || inputs.size() <= operand) return false;
    const ValueId state = inputs[operand] == kNoValue ? kNoValue : SeeThrough(inputs[operand]);
    if (state == kNoValue || !graph_.is_graph_input(state)) return false;
    taken_.insert(state);
    paired_.insert(output);
    found_.states.push_back({state, output});
    found_.near_misses.push_back(
        MakeFinding("KV226",
                    fmt::format("{} is the state of a {}: it stays as it is", graph_.name(state),
                                graph_.node(n).op_type()),
                    graph_, {n}, {state, output}));
    return true;
  }

  std::string WhyNotOperator(NodeId n, ValueId past, ValueId present, bool branches,
                             bool fused) const {
    const std::string& op = graph_.node(n).op_type();
    if (branches) {
      return fmt::format("{} is computed inside the branches of {}", graph_.name(present), op);
    }
    if (fused) return fmt::format("{} keeps the cache {} by itself", op, graph_.name(past));
    return fmt::format(
        "needs rows written at consecutive slots, found {}, which writes into {} at places that "
        "are not read",
        op, graph_.name(past));
  }

  // Arithmetic changes no extent, except that an axis may grow whose extent is not a constant.
  bool MayFlow(ValueId input, ValueId output) {
    if (!ShapesFit(input, output, token_lengths_)) return false;
    const auto axes = DifferingAxes(forms_, input, output);
    return !axes || axes->empty() ||
           forms_.Of(input).shape[axes->front()]->kind() != Kind::kInteger;
  }

  // The node through which a value flows into a present, by value; kNoNode for the present itself.
  using ReadBy = absl::flat_hash_map<ValueId, NodeId>;

  // Takes the nearest graph input of the same rank that the output is computed from.
  void ConsiderFlow(ValueId output, int rank) {
    std::deque<ValueId> queue = {output};
    ReadBy seen = {{output, kNoNode}};
    for (size_t k = 0; !queue.empty() && k < kMaxNodesOfFlow; ++k) {
      const ValueId v = queue.front();
      queue.pop_front();
      if (v != output && MayBePast(v, output, rank) && MayFlow(v, output)) {
        Candidate c;
        c.kind = UpdateKind::kBlend;
        c.if_unmatched = WhyNotWritten(v, output, seen);
        Add({v, output}, std::move(c));
        return;
      }
      const NodeId n = graph_.producer(v);
      if (n == kNoNode) continue;
      // A cache does not pass through attention or a projection.
      if (graph_.Is(n, "Attention") || !IsDefaultDomain(graph_.node(n).domain())) continue;
      if (v != output && IsProjection(n)) continue;
      for (ValueId input : graph_.inputs(n)) {
        if (input != kNoValue && seen.try_emplace(input, n).second) queue.push_back(input);
      }
    }
  }

  bool IsProjection(NodeId n) const {
    return graph_.Is(n, "MatMul") || graph_.Is(n, "Gemm") || graph_.Is(n, "MatMulInteger") ||
           graph_.Is(n, "QLinearMatMul");
  }

  Finding WhyNotWritten(ValueId past, ValueId present, const ReadBy& read_by) {
    const auto finding = [&](NodeId n, std::string_view found) {
      return MakeFinding("KV202",
                         fmt::format("needs {} to be {} with new rows written into it, found {}",
                                     graph_.name(present), graph_.name(past), found),
                         graph_, {n}, {past, present});
    };
    if (const NodeId n = FirstOfUnknownRank(forms_, present); n != kNoNode) {
      return finding(n, fmt::format("the result of {}, whose shape kvlift does not know",
                                    graph_.node(n).op_type()));
    }
    if (const NodeId n = QuantizerBehind(past, read_by); n != kNoNode) {
      return RoundsAgain(graph_, {past, present}, n);
    }
    return finding(graph_.producer(present), "arithmetic");
  }

  // Returns the first node that quantises the past on its way to the present; kNoNode if none does.
  NodeId QuantizerBehind(ValueId past, const ReadBy& read_by) const {
    for (ValueId v = past; v != kNoValue;) {
      const NodeId n = read_by.at(v);
      if (n == kNoNode || graph_.Is(n, "QuantizeLinear") || graph_.Is(n, "DynamicQuantizeLinear")) {
        return n;
      }
      const auto outputs = graph_.outputs(n);
      const auto next = std::find_if(outputs.begin(), outputs.end(),
                                     [&](ValueId output) { return read_by.contains(output); });
      v = next == outputs.end() ? kNoValue : *next;
    }
    return kNoNode;
  }

  void Add(CachePair pair, Candidate c) {
    taken_.insert(pair.past);
    paired_.insert(pair.present);
    c.pair = pair;
    found_.pairs.push_back(std::move(c));
  }

  sym::Forms& forms_;
  const Graph& graph_;
  Candidates found_;
  absl::flat_hash_set<ValueId> taken_, paired_;
  absl::flat_hash_set<sym::DimSymbol> new_lengths_, token_lengths_;
};

}  // namespace

Candidates FindCandidates(sym::Forms& forms) { return Finder(forms).Run(); }

}  // namespace kvlift
