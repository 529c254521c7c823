// softmax(softcap(scale * q k^T) + bias + mask) v written out:
//
//   MatMul(q, k^T) -> scale, softcap, biases, mask (added or selected) -> Softmax -> MatMul(., v)
//
// Either MatMul may be a FusedMatMul of com.microsoft. There may also be casts that round no more
// than the type of the cache does, Dropout outside training, a guard against NaN, scales on q, on
// k, on both or behind the product, and k and v repeated per group of heads in any way. The softmax
// may have one more score, of a sink (AttentionSite::sink), whose weight is cut off; the maximum of
// a row may be taken off its scores; it may be written as Exp, ReduceSum and Div; and its weights
// may be masked and divided by the sum of those that are left. The anchor is the second MatMul;
// everything before it is read from forms, so order and spelling do not matter. q [B, N, S, D],
// scores [B, N, S, T], [B*N, S, T] or [B, N / G, G, S, T]. Correct: Attention-24 computes the same
// expression in the same order. A fully masked row gives 0 in Attention-24; in the source it does
// so only behind a guard (AttentionSpelledOut::nan_guard).
#include <algorithm>

#include "fmt/format.h"
#include "rewrite/recognise/attention/match.h"
#include "rewrite/recognise/attention/probabilities.h"
#include "rewrite/recognise/attention/score.h"
#include "rewrite/types/matrix_product.h"
#include "rewrite/types/rule.h"
#include "sym/forms/keeps_value.h"
#include "sym/forms/row_softmax.h"

namespace kvlift::rewrites {
namespace {

using sym::Expr;
using sym::Kind;
using SiteResult = Recognised<AttentionSite>;

// One attempt, from the second MatMul backwards. Each step fills its part of the site, or returns
// false and leaves the answer in result_.
class Matcher {
 public:
  Matcher(sym::Forms& forms, NodeId node, absl::Span<const CacheUpdate> caches)
      : forms_(forms), graph_(forms.graph()), pool_(forms.pool()), caches_(caches), node_(node) {}

  SiteResult Run() {
    if (!ReadWeights() || !ReadValues() || !ReadScores() || !ReadProduct()) return result_;
    site_.spelling = spelled_;
    return SiteResult::Match(std::move(site_));
  }

 private:
  bool Refuse(std::string_view code, std::string text, NodeId blame) {
    result_ = SiteResult::Refuse(
        MakeFinding(code, std::move(text), graph_, {blame == kNoNode ? node_ : blame}));
    return false;
  }
  // Refuses only if the attention reads a cache; the rule does not apply to others.
  bool RefuseIfCached(std::string_view code, std::string text, NodeId blame) {
    return reads_cache_ && Refuse(code, std::move(text), blame);
  }

  // Reads the left operand as a softmax over keys, with b, h, s, t = i0..i3.
  bool ReadWeights() {
    left_ = graph_.inputs(node_)[0];
    right_ = graph_.inputs(node_)[1];
    const sym::Form out = forms_.Of(graph_.outputs(node_)[0]);
    const sym::Form left = forms_.Of(left_);
    if (!out.known_rank || !left.known_rank || left.shape.empty()) return false;
    const bool read = left.shape.size() == out.shape.size() && SplitBatchAndHeads(left.shape);
    if (read) {
      rank_ = left.shape.size();
      here_ = Indices(pool_, facts_.extents);
      weights_ = ReadProbabilities(
          forms_, BroadcastOperand(forms_, left_, Rows(rank_, here_), facts_), facts_);
      if (weights_.softmax == kNoNode) return false;
      row_ = ReadSoftmaxRow(forms_, weights_, here_[3], facts_.extents[3]);
      std::vector<Expr> place = weights_.args;
      place.back() = here_[3];
      // A division by the sum of what a mask leaves takes the weight of a sink away.
      const bool ends_sink = row_.sink != nullptr && weights_.keep != nullptr;
      if (!row_.read || ends_sink || !AreHere(place)) return false;
      facts_.extents.push_back(out.shape.back());  // d of v
      size_of_value_ = out.shape.back();
      heads_ = facts_.extents[1];
      return true;
    }
    facts_.extents = left.shape;
    here_ = Indices(pool_, facts_.extents);
    weights_ = ReadProbabilities(forms_, BroadcastOperand(forms_, left_, here_, facts_), facts_);
    if (weights_.softmax == kNoNode || weights_.args != here_) return false;
    const sym::Form& values = forms_.Of(right_);
    reads_cache_ = values.known_rank && ReadsCache(caches_, values.element);
    return RefuseIfCached(
        "KV210",
        fmt::format("needs scores of rank 4, or of rank 3 with a known number of heads, "
                    "found rank {}",
                    left.shape.size()),
        node_);
  }

  // Sets the extents of b, h, s, t from a shape [B, N, S, T], from [B*N, S, T] with a constant N,
  // or from [B, N / G, G, S, T] with both constant.
  bool SplitBatchAndHeads(const std::vector<Expr>& shape) {
    facts_.extents = shape;
    if (shape.size() == 5) {
      if (shape[1]->kind() != Kind::kInteger || shape[2]->kind() != Kind::kInteger) return false;
      spelled_.heads = HeadsByGroup{shape[2]->value()};
      facts_.extents[1] = pool_.Mul(shape[1], shape[2]);
      facts_.extents.erase(facts_.extents.begin() + 2);
      return true;
    }
    if (shape.size() != 3) return shape.size() == 4;
    const auto heads = HeadsOf(shape[0]);
    if (!heads) return false;
    spelled_.heads = HeadsInBatch();
    const Expr n = pool_.Integer(*heads);
    facts_.extents.insert(facts_.extents.begin() + 1, n);
    facts_.extents[0] = pool_.FloorDiv(shape[0], n, facts_);
    return true;
  }

  // Returns N of an extent B*N: its constant factor or, if B is constant, its quotient by the
  // caches' B.
  std::optional<int64_t> HeadsOf(Expr extent) const {
    if (extent->kind() == Kind::kSum && extent->terms().size() == 1 && extent->value() == 0) {
      return extent->terms()[0].coefficient;
    }
    if (extent->kind() != Kind::kInteger) return std::nullopt;
    for (const CacheUpdate& cache : caches_) {
      const size_t batch = cache.layout.find('B');
      if (cache.layout.find('N') == std::string::npos || batch == std::string::npos) continue;
      const Expr sequences = forms_.Of(cache.pair.past).shape[batch];
      if (sequences->kind() != Kind::kInteger || sequences->value() <= 0) continue;
      if (extent->value() % sequences->value() == 0) return extent->value() / sequences->value();
    }
    return std::nullopt;
  }

  // Returns the indices of a tensor of rank 4, or of one with other HeadAxes, for b, h and two more
  // indices in `at`.
  std::vector<Expr> Rows(size_t rank, const std::vector<Expr>& at) const {
    if (const auto* by_group = std::get_if<HeadsByGroup>(&spelled_.heads); by_group && rank == 5) {
      const Expr groups = pool_.Integer(by_group->groups);
      const Expr key_head = pool_.FloorDiv(at[1], groups, facts_);
      return {at[0], key_head, pool_.Sub(at[1], pool_.Mul(key_head, groups)), at[2], at[3]};
    }
    if (rank != 3) return at;
    const Expr row = pool_.Add(pool_.Mul(at[0], facts_.extents[1]), at[1]);
    return {row, at[2], at[3]};
  }

  bool AreHere(const std::vector<Expr>& args) const {
    return args == here_ || args == Rows(args.size(), here_);
  }

  bool ReadValues() {
    const Expr raw = BroadcastOperand(
        forms_, right_, Rows(rank_, {here_[0], here_[1], here_[3], pool_.Index(4)}), facts_);
    if (raw == nullptr) return false;
    const Scaled values = RemoveScale(forms_, raw, facts_);
    reads_cache_ = ReadsStored(forms_, caches_, values.element, facts_);
    values_ = values.element;
    value_roundings_ = values.roundings;
    site_.node = node_;
    spelled_.nan_guard = weights_.nan_guard;
    site_.softmax_type = forms_.ElementType(weights_.scores);
    site_.nodes = weights_.nodes;
    site_.nodes.push_back(node_);
    if (heads_->kind() != Kind::kInteger) {
      return RefuseIfCached("KV210",
                            fmt::format("needs a constant number of query heads, found {}",
                                        sym::ToString(heads_, &graph_)),
                            node_);
    }
    site_.q_heads = heads_->value();
    site_.v_head_dim = size_of_value_->kind() == Kind::kInteger ? size_of_value_->value() : 0;
    if (values.factor == 1.0) {
      site_.value = FindCache(forms_, caches_, values.element, forms_.ElementType(right_),
                              site_.q_heads, facts_);
    }
    return site_.value.cache >= 0 || !reads_cache_ || RefuseValues();
  }

  bool RefuseValues() {
    return Refuse("KV213",
                  fmt::format("needs values that are a cache as it stands, found {}",
                              sym::ToString(values_, &graph_)),
                  node_);
  }

  bool ReadScores() {
    const ValueId scores = Scores();
    ScoreResult read = ReadScore(forms_, forms_.At(scores, weights_.args, facts_), facts_);
    if (!read.score) {
      return RefuseIfCached("KV211",
                            fmt::format("needs scores that are a scaled product plus masks and "
                                        "biases, found {}",
                                        read.why_not),
                            read.blame);
    }
    score_ = *std::move(read.score);
    if (weights_.keep != nullptr) score_.keep = pool_.And(score_.keep, weights_.keep);
    if (row_.sink != nullptr && !ReadSink(scores)) return false;
    AddNodes(score_.nodes);
    site_.nodes.push_back(score_.product);
    site_.mask = {score_.keep, facts_.extents[3], score_.biases, score_.bias_keep};
    site_.softcap = score_.softcap;
    return AreHere(score_.product_args) ||
           RefuseIfCached("KV210", "needs scores in the order batch, head, query, key",
                          score_.product);
  }

  // Returns the operand of the softmax. The maximum of a row may be taken off all of its scores,
  // that of the sink included, which a softmax does not see.
  ValueId Scores() {
    ValueId scores = weights_.scores;
    while (true) {
      const ValueId x = sym::WithoutMaximum(forms_, scores);
      if (x == kNoValue) break;
      site_.nodes.push_back(graph_.producer(scores));
      scores = x;
    }
    return scores;
  }

  // Reads the score of the sink, which must be one number for each query head.
  bool ReadSink(ValueId scores) {
    std::vector<Expr> at = weights_.args;
    at.back() = row_.sink;
    const Expr sink = forms_.At(scores, at, facts_);
    const auto varies = [&](int index) { return sym::ContainsIndex(sink, index); };
    if (sink == nullptr || varies(0) || varies(2) || varies(3)) {
      return RefuseIfCached("KV211", "needs a sink that is one number for each query head",
                            weights_.softmax);
    }
    site_.sink = sink;
    return true;
  }

  bool ReadProduct() {
    const ValueId query = graph_.inputs(score_.product)[0];
    const ValueId key = graph_.inputs(score_.product)[1];
    const sym::Form& form = forms_.Of(query);
    const size_t rank = score_.product_args.size();
    if (!form.known_rank || form.shape.size() != rank ||
        form.shape.back()->kind() != Kind::kInteger) {
      return RefuseIfCached("KV210", "needs queries with a constant head size", score_.product);
    }
    site_.head_dim = form.shape.back()->value();
    facts_.extents[4] = form.shape.back();
    const Product product = *kvlift::ReadProduct(graph_, score_.product);
    const Expr b = here_[0], h = here_[1], s = here_[2], t = here_[3], d = pool_.Index(4);
    const Expr q_raw = product.trans_a
                           ? nullptr
                           : BroadcastOperand(forms_, query, Rows(rank, {b, h, s, d}), facts_);
    const Expr k_raw = BroadcastOperand(
        forms_, key,
        Rows(rank, product.trans_b ? std::vector<Expr>{b, h, t, d} : std::vector<Expr>{b, h, d, t}),
        facts_);
    if (q_raw == nullptr || k_raw == nullptr) return false;
    const Scaled q = RemoveScale(forms_, q_raw, facts_), k = RemoveScale(forms_, k_raw, facts_);
    reads_cache_ = reads_cache_ || ReadsStored(forms_, caches_, k.element, facts_);
    if (!reads_cache_) return false;  // attention without a cache
    if (site_.value.cache < 0) return RefuseValues();
    AddNodes(q.nodes);
    AddNodes(k.nodes);
    site_.scale = score_.factor * k.factor;
    spelled_.operand_scale = k.factor;
    spelled_.product_type = forms_.ElementType(graph_.outputs(score_.product)[0]);
    // Keys that are read in a wider type than the values are read in the type of the values.
    const int32_t own = forms_.ElementType(key), of_values = forms_.ElementType(right_);
    const bool keeps = sym::CastFidelity(own, of_values) == sym::Fidelity::kExact;
    site_.key =
        FindCache(forms_, caches_, k.element, keeps ? own : of_values, site_.q_heads, facts_);
    if (site_.key.cache < 0) {
      return Refuse("KV213",
                    fmt::format("needs keys that are a cache as it stands, found {}",
                                sym::ToString(k.element, &graph_)),
                    score_.product);
    }
    return JudgeRoundings(k) &&
           (ReadQuery(q, query) ||
            Refuse("KV210", "needs queries as a value of shape [B, N, S, D]", score_.product));
  }

  // Attention computes in the type of the rows, so casts to types with fewer numbers are refused.
  bool JudgeRoundings(const Scaled& keys) {
    type_ = TypeOfRows(forms_, caches_[site_.key.cache], site_.key.view);
    struct Part {
      std::string_view name;
      const Roundings& roundings;
      NodeId blame;
    };
    for (const Part& part :
         {Part{"keys", keys.roundings, score_.product}, Part{"values", value_roundings_, node_},
          Part{"scores", score_.roundings, score_.product},
          Part{"weights", weights_.roundings, weights_.softmax}}) {
      if (KeepsNumbersOf(type_, part.roundings)) continue;
      const auto worst = std::find_if(part.roundings.begin(), part.roundings.end(),
                                      [&](int32_t to) { return !KeepsNumbersOf(type_, {to}); });
      return Refuse("KV211",
                    fmt::format("needs {} that keep the numbers of the rows, {}, found them "
                                "rounded to {}",
                                part.name, ElementTypeName(type_), ElementTypeName(*worst)),
                    part.blame);
    }
    return true;
  }

  // Finds the query as a value of shape [B, N, S, D], or of the shape that its operand has. It
  // takes the value with most of the scale removed, of the type of the rows if there is one. A
  // scale in front of the split into heads stays in the graph.
  bool ReadQuery(const Scaled& q, ValueId operand) {
    const Expr batch = facts_.extents[0], heads = facts_.extents[1], tokens = facts_.extents[2];
    const Expr size = pool_.Integer(site_.head_dim);
    if (FindQuery(q, operand, {nullptr, nullptr, nullptr, nullptr, pool_.Index(3)},
                  {batch, heads, tokens, size})) {
      return true;
    }
    if (const auto* by_group = std::get_if<HeadsByGroup>(&spelled_.heads)) {
      const Expr groups = pool_.Integer(by_group->groups);
      const Expr head = pool_.Add(pool_.Mul(pool_.Index(1), groups), pool_.Index(2));
      return FindQuery(q, operand, {nullptr, head, pool_.Index(3), nullptr, nullptr},
                       {batch, pool_.FloorDiv(heads, groups, facts_), groups, tokens, size});
    }
    if (!std::holds_alternative<HeadsInBatch>(spelled_.heads)) return false;
    const std::vector<Expr> rows = {pool_.Mul(batch, heads), tokens, size};
    const Expr row = pool_.Index(0), sequence = pool_.FloorDiv(row, heads, sym::Facts{rows});
    const Expr head = pool_.Sub(row, pool_.Mul(sequence, heads));
    return FindQuery(q, operand, {sequence, head, pool_.Index(1), nullptr, pool_.Index(2)}, rows);
  }

  bool FindQuery(const Scaled& q, ValueId operand, std::vector<Expr> indices,
                 const std::vector<Expr>& shape) {
    sym::Pool::Substitution rename;
    rename.indices = std::move(indices);
    for (const std::optional<int32_t> type : {std::optional(type_), std::optional<int32_t>()}) {
      for (auto stage = q.stages.rbegin(); stage != q.stages.rend(); ++stage) {
        if (!KeepsNumbersOf(type_, absl::MakeConstSpan(q.roundings).first(stage->roundings))) {
          continue;
        }
        const Expr target = pool_.Substitute(stage->element, rename, sym::Facts{shape});
        site_.query = FindValue(forms_, operand, target, shape, std::nullopt, type);
        if (site_.query == kNoValue) continue;
        site_.scale *= stage->factor;
        spelled_.operand_scale *= stage->factor;
        return true;
      }
    }
    return false;
  }

  void AddNodes(const std::vector<NodeId>& nodes) {
    site_.nodes.insert(site_.nodes.end(), nodes.begin(), nodes.end());
  }

  sym::Forms& forms_;
  const Graph& graph_;
  sym::Pool& pool_;
  absl::Span<const CacheUpdate> caches_;
  NodeId node_;
  ValueId left_ = kNoValue, right_ = kNoValue;
  size_t rank_ = 4;         // of the weights
  std::vector<Expr> here_;  // i0..i3
  sym::Facts facts_;        // extents of b, h, s, t, d
  Expr size_of_value_ = nullptr, heads_ = nullptr, values_ = nullptr;
  Probabilities weights_;
  SoftmaxRow row_;
  Score score_;
  Roundings value_roundings_;
  int32_t type_ = 0;  // of the rows of keys as attention reads them
  bool reads_cache_ = false;
  AttentionSite site_;
  AttentionSpelledOut spelled_;
  SiteResult result_;
};

SiteResult MatchDecomposedAttention(sym::Forms& forms, NodeId node,
                                    absl::Span<const CacheUpdate> caches) {
  const auto product = ReadProduct(forms.graph(), node);
  if (!product || product->trans_a || product->trans_b || product->alpha != 1.0) {
    return SiteResult::NotThis();
  }
  return Matcher(forms, node, caches).Run();
}

}  // namespace

const Rule& decomposed_attention() {
  static const Rule rule = {"decomposed_attention",
                            "attention written out as MatMul, Softmax and MatMul", nullptr,
                            &MatchDecomposedAttention};
  return rule;
}

}  // namespace kvlift::rewrites
