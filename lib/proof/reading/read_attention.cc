#include "proof/reading/read_attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "proof/graphs/matrix_products.h"
#include "proof/lemmas/exact_cast.h"
#include "proof/lemmas/heads_regrouped.h"
#include "proof/lemmas/mask_split.h"
#include "proof/lemmas/names.h"
#include "proof/lemmas/nan_guard.h"
#include "proof/lemmas/row_maximum.h"
#include "proof/lemmas/scale_moved.h"
#include "proof/lemmas/short_mask.h"
#include "proof/lemmas/sink_key.h"
#include "proof/lemmas/softmax_precision.h"
#include "sym/forms/broadcast.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Facts;
using sym::Kind;

constexpr int kMostSteps = 64;

class Reader {
 public:
  Reader(sym::Forms& forms, int64_t heads)
      : forms_(forms), graph_(forms.graph()), pool_(forms.pool()), heads_(heads) {}

  AttentionReading Run(ValueId result) {
    r_.visible = pool_.True();
    const NodeId node = graph_.producer(result);
    if (node == kNoNode) {
      Fail("it is no result of a node");
    } else if (graph_.Is(node, "Attention")) {
      ReadOperator(node);
    } else if (const auto product = ProductOf(node); product && product->factor == 1) {
      ReadProducts(node);
    } else {
      Fail(fmt::format("its result comes from a {}", graph_.node(node).op_type()));
    }
    return std::move(r_);
  }

 private:
  bool Fail(std::string why) {
    if (r_.why_not.empty()) r_.why_not = std::move(why);
    return false;
  }

  std::optional<Product> ProductOf(NodeId n) const { return ReadProduct(forms_, n); }

  bool IsRank(const sym::Form& form) const {
    return form.known_rank && (form.shape.size() == 4 || (form.shape.size() == 3 && heads_ > 0));
  }

  // The indices of the batch and head axes in a value of this rank, for sequence i0 and head i1.
  std::vector<Expr> Front(size_t rank) {
    const Expr b = pool_.Index(0), h = pool_.Index(1);
    if (rank == 4) return {b, h};
    return {pool_.Add(pool_.Mul(b, pool_.Integer(heads_)), h)};
  }

  // The indices of element i0, i1, i2, `last` in a value of this rank.
  std::vector<Expr> Here(size_t rank, Expr last) {
    std::vector<Expr> here = Front(rank);
    here.push_back(pool_.Index(2));
    here.push_back(last);
    return here;
  }

  // The element in row r and column c of a matrix operand of this rank; `turned`: the operand is
  // transposed.
  Expr Cell(ValueId v, size_t rank, Expr r, Expr c, bool turned) {
    std::vector<Expr> front = Front(rank);
    front.push_back(turned ? c : r);
    front.push_back(turned ? r : c);
    return At(v, front);
  }

  // The element of an operand that is broadcast to `args`.
  Expr At(ValueId v, absl::Span<const Expr> args) {
    return sym::BroadcastAt(forms_, v, args, r_.extents);
  }

  struct Factored {
    Expr element = nullptr;
    double factor = 1;
    FactorRange range;
  };

  // The element that e passes on exactly; null if e is anything else.
  Expr Passed(Expr e) { return BeforeExactCast(forms_, e, r_.extents, &r_.grounds); }

  // What an expression is without its last step.
  struct Peeled {
    Expr element = nullptr;            // null: the step is no multiplication and no exact cast
    std::optional<Multiplication> by;  // absent: the step is a cast
  };

  // Removes one multiplication or division by a number, or one exact cast, from e.
  Peeled WithoutStep(Expr e) {
    if (e->kind() != Kind::kLoad) return {};
    if (const Expr same = Passed(e); same != nullptr) return {same, std::nullopt};
    const NodeId n = graph_.producer(e->source());
    const auto read = n == kNoNode ? std::nullopt : ReadFactor(forms_, n);
    const Expr operand = read ? At(read->operand, e->args()) : nullptr;
    if (operand == nullptr) return {};
    r_.grounds.AddLemma(lemmas::kScaleMoved);
    return {operand, Multiplication{read->number, forms_.ElementType(e->source())}};
  }

  Factored Peel(Expr e) {
    Factored result{e, 1, {}};
    std::vector<Multiplication> chain;
    for (int k = 0; result.element != nullptr && k < kMostSteps; ++k) {
      const Peeled inner = WithoutStep(result.element);
      if (inner.element == nullptr) break;
      if (inner.by) {
        result.factor *= inner.by->factor;
        chain.push_back(*inner.by);
      }
      result.element = inner.element;
    }
    result.range = RangeOfChain(chain);
    return result;
  }

  // Hides all keys for which `where` does not hold.
  void See(Expr where, const std::set<double>& hidden_by) {
    r_.visible = pool_.And(r_.visible, where);
    r_.hidden_by.insert(hidden_by.begin(), hidden_by.end());
    r_.grounds.AddLemma(lemmas::kMaskSplit);
  }

  // Finds the softmax that the left operand of the second product comes from. Sets `where` to the
  // indices of its element. `to` is the type of that product.
  NodeId FindSoftmax(Expr e, int32_t to, std::vector<Expr>* where) {
    for (int k = 0; e != nullptr && k < kMostSteps; ++k) {
      if (e->kind() == Kind::kSelect) {
        e = WithoutNanGuard(forms_, e, &r_.grounds);
        if (e == nullptr) return kNoNode;
        r_.nan_guard = true;
        continue;
      }
      if (e->kind() != Kind::kLoad) return kNoNode;
      const NodeId n = graph_.producer(e->source());
      if (n == kNoNode) return kNoNode;
      if (graph_.Is(n, "Softmax")) {
        where->assign(e->args().begin(), e->args().end());
        const int64_t axis = IntAttribute(graph_.node(n), "axis", -1);
        return axis == -1 || axis == static_cast<int64_t>(where->size()) - 1 ? n : kNoNode;
      }
      Expr inner = Passed(e);
      if (inner == nullptr && IsCastOfWeights(forms_, n, to)) {
        r_.grounds.AddLemma(lemmas::kSoftmaxPrecision);
        inner = At(graph_.inputs(n)[0], e->args());
      }
      e = inner;
    }
    return kNoNode;
  }

  // The operand of a softmax, without the maximum of a row that is taken off all of its scores.
  ValueId ScoresOf(NodeId softmax) {
    ValueId x = graph_.inputs(softmax)[0];
    for (int k = 0; k < kMostSteps; ++k) {
      const ValueId inner = WithoutRowMaximum(forms_, x, &r_.grounds);
      if (inner == kNoValue) break;
      x = inner;
    }
    return x;
  }

  // Returns true if a softmax of x has one score for each key, of which the one at `where` is that
  // of key i3, and perhaps one of a sink, which is read.
  bool IsOverKeys(ValueId x, absl::Span<const Expr> where) {
    const sym::Form scores = forms_.Of(x);
    if (!scores.known_rank || scores.shape.empty()) return false;
    const Expr keys = r_.extents.extents[3];
    // On an axis of extent 1 the index is 0.
    const Expr t = keys->is_integer(1) ? pool_.Integer(0) : pool_.Index(3);
    const Expr own = keys->is_integer(1) && where.back() == pool_.Index(3) ? t : where.back();
    const Expr more = pool_.Sub(scores.shape.back(), keys);
    if (more->is_integer(0)) return own == t;
    const bool in_front = own == pool_.Add(t, pool_.Integer(1));
    if (!more->is_integer(1) || (own != t && !in_front)) return false;
    std::vector<Expr> at(where.begin(), where.end());
    at.back() = in_front ? pool_.Integer(0) : keys;
    const Expr sink = forms_.At(x, at, r_.extents);
    if (sink == nullptr || sym::ContainsIndex(sink, 3)) return false;
    r_.sink = sink;
    return true;
  }

  // Reads from the softmax's operand back to the first product: masks, selections and factors.
  bool ReadScores(Expr e) {
    for (int k = 0; e != nullptr && k < kMostSteps; ++k) {
      if (e->kind() == Kind::kSelect) {
        e = WithoutSelection(e);
        if (e == nullptr) return false;
        continue;
      }
      const NodeId n = e->kind() == Kind::kLoad ? graph_.producer(e->source()) : kNoNode;
      if (n == kNoNode) return Fail("the scores are no product of queries and keys");
      if (k == 0 && IsCastOfScores(forms_, n, r_.softmax_type)) {
        r_.grounds.AddLemma(lemmas::kSoftmaxPrecision);
        e = At(graph_.inputs(n)[0], e->args());
        continue;
      }
      if (ProductOf(n)) return ReadFirstProduct(n, e);
      if (graph_.Is(n, "Add")) {
        e = WithoutMask(n, e);
        if (e == nullptr) return false;
        continue;
      }
      if (graph_.Is(n, "Tanh") && r_.softcap == 0) {
        if (!IsScale(r_.scale)) return Fail("its softcap is no positive number");
        r_.softcap = r_.scale;
        r_.products.capped = RangeOfChain(factors_);
        factors_.clear();
        e = At(graph_.inputs(n)[0], e->args());
        continue;
      }
      const Peeled inner = WithoutStep(e);
      if (inner.by) {
        r_.scale *= inner.by->factor;
        factors_.push_back(*inner.by);
      }
      e = inner.element;
    }
    return Fail("the scores are not read");
  }

  // Only a scale may follow a mask on the way to the softmax.
  bool MaskFits() {
    if (IsScale(r_.scale) && r_.softcap == 0) return true;
    return Fail("a mask is in front of a softcap, or of a factor that may turn it");
  }

  Expr WithoutSelection(Expr e) {
    if (!MaskFits()) return nullptr;
    const Expr c = e->args()[0];
    const auto a = HiddenBy(pool_, e->args()[1], r_.scale),
               b = HiddenBy(pool_, e->args()[2], r_.scale);
    const bool first = b && b->everywhere(), second = a && a->everywhere();
    if (!first && !second) {
      Fail("a score is selected, and not against a number that hides it");
      return nullptr;
    }
    See(first ? c : pool_.Not(c), (first ? *b : *a).numbers);
    return e->args()[first ? 1 : 2];
  }

  Expr WithoutMask(NodeId n, Expr e) {
    if (!MaskFits()) return nullptr;
    for (int k : {1, 0}) {
      const auto hiding = HiddenBy(pool_, At(graph_.inputs(n)[k], e->args()), r_.scale);
      if (!hiding) continue;
      See(pool_.Not(hiding->where), hiding->numbers);
      return At(graph_.inputs(n)[1 - k], e->args());
    }
    for (int k : {1, 0}) {
      const Expr scores = At(graph_.inputs(n)[1 - k], e->args());
      if (scores == nullptr || !LeadsToProduct(scores, 0)) continue;
      if (r_.scale != 1) break;
      return AddBias(At(graph_.inputs(n)[k], e->args())) ? scores : nullptr;
    }
    Fail("something is added to the scores that is no mask");
    return nullptr;
  }

  bool LeadsToProduct(Expr e, int depth) {
    if (e == nullptr || depth > kMostSteps) return false;
    if (e->kind() == Kind::kSelect) {
      return LeadsToProduct(e->args()[1], depth + 1) || LeadsToProduct(e->args()[2], depth + 1);
    }
    if (e->kind() != Kind::kLoad) return false;
    const NodeId n = graph_.producer(e->source());
    if (n == kNoNode) return false;
    if (ProductOf(n)) return true;
    if (graph_.Is(n, "Add")) {
      return LeadsToProduct(At(graph_.inputs(n)[0], e->args()), depth + 1) ||
             LeadsToProduct(At(graph_.inputs(n)[1], e->args()), depth + 1);
    }
    return LeadsToProduct(WithoutStep(e).element, depth + 1);
  }

  // Reads what is added to the scores: where it hides a key, and its value elsewhere.
  bool AddBias(Expr e) {
    const auto mask = SplitMask(forms_, e, r_.extents, &r_.grounds);
    if (!mask) return Fail("a bias is added to its scores that is not read");
    See(pool_.Not(mask->hiding.where), mask->hiding.numbers);
    r_.bias.insert(r_.bias.end(), mask->bias.begin(), mask->bias.end());
    return true;
  }

  bool ReadFirstProduct(NodeId n, Expr e) {
    const Expr s = pool_.Index(2), t = pool_.Index(3);
    const size_t rank = e->args().size();
    const sym::Form q = forms_.Of(graph_.inputs(n)[0]);
    if (!IsRank(q) || q.shape.size() != rank) return Fail("the queries have no rank of 4");
    const std::vector<Expr> args(e->args().begin(), e->args().end());
    if (!SamePlace(args, Here(rank, t))) return Fail("the scores are not in the order b, h, s, t");
    r_.extents.extents.resize(5, nullptr);
    const Expr d = pool_.Index(4);
    const Product product = *ProductOf(n);
    r_.extents.extents[4] = q.shape[rank - (product.left_turned ? 2 : 1)];
    const Factored query = Peel(Cell(graph_.inputs(n)[0], rank, s, d, product.left_turned));
    const Factored key = Peel(Cell(graph_.inputs(n)[1], rank, d, t, product.right_turned));
    if (query.element == nullptr || key.element == nullptr) return Fail("operands are not read");
    r_.query = query.element;
    r_.key = key.element;
    r_.scale *= query.factor * key.factor * product.factor;
    r_.products.plain = r_.products.scaled = query.factor * key.factor;
    factors_.push_back({product.factor, forms_.ElementType(e->source())});
    r_.products.query = query.range;
    r_.products.key = key.range;
    r_.products.scores = RangeOfChain(factors_);
    r_.products.type = forms_.ElementType(graph_.outputs(n)[0]);
    return IsScale(r_.scale) || Fail("its scale is no positive number");
  }

  // Compares indices; on an axis of extent 1 the index is 0.
  bool SamePlace(absl::Span<const Expr> args, absl::Span<const Expr> here) const {
    if (args.size() != here.size()) return false;
    // 0 unless heads are folded into the batch.
    const size_t more = r_.extents.extents.size() - args.size();
    for (size_t k = 0; k < args.size(); ++k) {
      const bool one = more == 0 && r_.extents.extents[k]->is_integer(1) && args[k]->is_integer(0);
      if (args[k] != here[k] && !one) return false;
    }
    return true;
  }

  bool ReadProducts(NodeId node) {
    if (ProductOf(node)->left_turned) return Fail("its weights are transposed");
    const ValueId left = graph_.inputs(node)[0], right = graph_.inputs(node)[1];
    const sym::Form weights = forms_.Of(left), result = forms_.Of(graph_.outputs(node)[0]);
    if (!IsRank(weights) || !IsRank(result) || result.shape.size() != weights.shape.size()) {
      return Fail("its products have no rank of 4");
    }
    const size_t rank = weights.shape.size();
    r_.extents.extents = weights.shape;
    if (rank == 3) {
      const Expr heads = pool_.Integer(heads_);
      r_.extents.extents[0] = pool_.FloorDiv(weights.shape[0], heads, Facts{});
      r_.extents.extents.insert(r_.extents.extents.begin() + 1, heads);
    }
    r_.size_of_value = result.shape.back();
    const Expr t = pool_.Index(3);
    std::vector<Expr> where;
    const NodeId softmax = FindSoftmax(At(left, Here(rank, t)), forms_.ElementType(right), &where);
    if (softmax == kNoNode) return Fail("no softmax over the keys");
    std::vector<Expr> place = where;
    place.back() = t;
    if (!SamePlace(place, Here(where.size(), t))) return Fail("no softmax over the keys");
    const ValueId scores = ScoresOf(softmax);
    if (!IsOverKeys(scores, where)) return Fail("its softmax is over other keys than are read");
    r_.softmax_type = forms_.ElementType(scores);
    if (!ReadScores(At(scores, where))) return false;
    Facts facts = r_.extents;
    r_.extents.extents[4] = r_.size_of_value;
    r_.value = Cell(right, rank, t, pool_.Index(4), ProductOf(node)->right_turned);
    r_.extents = facts;
    return r_.value != nullptr || Fail("the values are not read");
  }

  ValueId Input(NodeId node, size_t k) const {
    return k < graph_.inputs(node).size() ? graph_.inputs(node)[k] : kNoValue;
  }

  // The shape of an operator's operand as [B, N, S, D]; `joined` if it is given as [B, S, N * D].
  struct OperandShape {
    std::vector<Expr> shape;
    bool joined = false;
  };

  // `heads` is 0 if the operator does not give the number. For operands of rank 4 it has to equal
  // their own.
  std::optional<OperandShape> ByHeads(ValueId v, int64_t heads) {
    const sym::Form form = forms_.Of(v);
    if (!form.known_rank) return std::nullopt;
    if (form.shape.size() == 4) {
      if (heads != 0 && !form.shape[1]->is_integer(heads)) return std::nullopt;
      return OperandShape{form.shape, false};
    }
    const Expr all = form.shape.size() == 3 ? form.shape[2] : nullptr;
    if (all == nullptr || all->kind() != Kind::kInteger || heads < 1 || all->value() % heads != 0) {
      return std::nullopt;
    }
    return OperandShape{
        {form.shape[0], pool_.Integer(heads), form.shape[1], pool_.Integer(all->value() / heads)},
        true};
  }

  Expr Element(ValueId v, absl::Span<const Expr> at, const OperandShape& form) {
    if (!form.joined) return At(v, at);
    return At(v, {at[0], at[2], pool_.Add(pool_.Mul(at[1], form.shape[3]), at[3])});
  }

  // Returns true if the node has no attributes but those of Attention-24 that are read, and
  // qk_matmul_output_mode, which only chooses another output.
  bool HasKnownAttributes(NodeId node) const {
    static const auto& kKnown = *new absl::flat_hash_set<std::string_view>{
        "is_causal", "kv_num_heads", "q_num_heads",      "qk_matmul_output_mode",
        "scale",     "softcap",      "softmax_precision"};
    const auto& attributes = graph_.node(node).attribute();
    return std::all_of(attributes.begin(), attributes.end(),
                       [](const auto& a) { return kKnown.contains(a.name()); });
  }

  bool ReadOperator(NodeId node) {
    r_.is_operator = true;
    if (!HasKnownAttributes(node)) return Fail("it has an attribute that is not read");
    const int64_t q_heads = IntAttribute(graph_.node(node), "q_num_heads", 0);
    const int64_t k_heads = IntAttribute(graph_.node(node), "kv_num_heads", 0);
    const auto q_form = ByHeads(Input(node, 0), q_heads), k_form = ByHeads(Input(node, 1), k_heads),
               v_form = ByHeads(Input(node, 2), k_heads);
    if (!q_form || !k_form || !v_form || q_form->joined != k_form->joined ||
        q_form->joined != v_form->joined) {
      return Fail("its operands have no heads that are seen");
    }
    r_.joined = q_form->joined;
    const OperandShape &q = *q_form, &k = *k_form, &v = *v_form;
    const Expr heads = q.shape[1], kv_heads = k.shape[1];
    if (heads->kind() != Kind::kInteger || kv_heads->kind() != Kind::kInteger ||
        q.shape[3]->kind() != Kind::kInteger) {
      return Fail("its numbers of heads are not constant");
    }
    const Expr more = pool_.Sub(k.shape[2], v.shape[2]);
    if (more->kind() == Kind::kInteger && !more->is_integer(0)) {
      return Fail("its keys and values are not of one length");
    }
    const auto group = GroupSize(heads->value(), kv_heads->value());
    if (!group) return Fail("its heads do not fit each other");
    const Expr past = PastOf(node);
    if (past == nullptr) return Fail("it keeps a past that is not read");
    r_.equal_extents = {{k.shape[0], q.shape[0]},
                        {v.shape[0], q.shape[0]},
                        {v.shape[1], kv_heads},
                        {k.shape[2], v.shape[2]},
                        {k.shape[3], q.shape[3]}};
    if (heads != kv_heads) r_.grounds.AddLemma(lemmas::kHeadsRegrouped);
    r_.extents.extents = {q.shape[0], heads, q.shape[2], pool_.Add(past, k.shape[2]), q.shape[3]};
    r_.size_of_value = v.shape[3];
    const Expr b = pool_.Index(0), h = pool_.Index(1), s = pool_.Index(2), t = pool_.Index(3),
               d = pool_.Index(4);
    const Expr hk = pool_.FloorDiv(h, pool_.Integer(*group), r_.extents);
    r_.query = Element(Input(node, 0), {b, h, s, d}, q);
    if (HasSinkKey(node, hk, k, v)) {
      r_.extents.extents[3] = pool_.Sub(r_.extents.extents[3], pool_.Integer(1));
    }
    r_.key = BehindPast(Input(node, 4), Input(node, 1), past, {b, hk, t, d}, k);
    Facts facts = r_.extents;
    r_.extents.extents[4] = r_.size_of_value;
    r_.value = BehindPast(Input(node, 5), Input(node, 2), past, {b, hk, t, d}, v);
    r_.extents = facts;
    const Factored query = Peel(r_.query);
    r_.query = query.element;
    const onnx::NodeProto& proto = graph_.node(node);
    const auto usual = static_cast<float>(1 / std::sqrt(static_cast<double>(q.shape[3]->value())));
    const double scale = FloatAttribute(proto, "scale", usual);
    r_.scale = scale * query.factor;
    r_.softcap = FloatAttribute(proto, "softcap", 0);
    r_.products.plain = query.factor;
    r_.products.scaled = r_.scale;
    r_.products.type = forms_.ElementType(Input(node, 0));
    r_.products.query = query.range;
    r_.products.scores = RangeOfChain({{scale, r_.products.type}});
    if (r_.softcap != 0) r_.products.capped = RangeOfChain({{r_.softcap, r_.products.type}});
    r_.softmax_type = static_cast<int32_t>(
        IntAttribute(proto, "softmax_precision", forms_.ElementType(Input(node, 0))));
    if (r_.key == nullptr || r_.value == nullptr || r_.query == nullptr) {
      return Fail("its operands are not read");
    }
    if (!IsScale(r_.scale)) return Fail("its scale is no positive number");
    if (r_.softcap != 0 && !IsScale(r_.softcap)) return Fail("its softcap is no positive number");
    return ReadVisible(node, q.shape[2], past);
  }

  // Returns true if the valid lengths of an operator are not given, or are the number of its keys.
  bool CountsAllKeys(ValueId valid) {
    if (valid == kNoValue) return true;
    return forms_.Of(valid).shape.size() == 1 &&
           At(valid, {pool_.Index(0)}) == r_.extents.extents[3];
  }

  // Returns true if the last key of an operator is that of a sink, and sets has_sink_key_.
  bool HasSinkKey(NodeId node, Expr key_head, const OperandShape& k, const OperandShape& v) {
    const ValueId mask = Input(node, 3);
    const bool masked = mask != kNoValue && forms_.ElementType(mask) != TensorProto::BOOL;
    const bool alone = Input(node, 4) == kNoValue && CountsAllKeys(Input(node, 6)) &&
                       IntAttribute(graph_.node(node), "is_causal", 0) == 0;
    if (!masked || !alone) return false;
    const Expr last = pool_.Sub(r_.extents.extents[3], pool_.Integer(1));
    const std::vector<Expr> at = {pool_.Index(0), key_head, last, pool_.Index(4)};
    const Expr key = Element(Input(node, 1), at, k);
    Facts facts = r_.extents;
    r_.extents.extents[4] = r_.size_of_value;
    const Expr value = Element(Input(node, 2), at, v);
    r_.extents = facts;
    has_sink_key_ = IsRowOfSink(key, value);
    if (has_sink_key_) r_.grounds.AddLemma(lemmas::kSinkKey);
    return has_sink_key_;
  }

  // Reads the score of the sink, if there is one, from the last column of the operator's mask.
  bool ReadSinkColumn(ValueId mask, const MaskShape& shape, Expr last) {
    if (!has_sink_key_) return true;
    if (shape.is_short) return Fail("its mask has no column for the key of zeros");
    sym::Pool::Substitution at_last;
    at_last.indices = {nullptr, nullptr, nullptr, last};
    std::vector<Expr> at = shape.at;
    for (Expr& e : at) e = pool_.Substitute(e, at_last, Facts{});
    r_.sink = forms_.At(mask, at, Facts{});
    const bool hides = r_.sink == nullptr || r_.sink->kind() == Kind::kSelect;
    return !hides || Fail("the score of its key of zeros is not read");
  }

  // The length of an operator's own past; null if it is not read.
  Expr PastOf(NodeId node) {
    if (Input(node, 4) == kNoValue) return pool_.Integer(0);
    const sym::Form key = forms_.Of(Input(node, 4)), value = forms_.Of(Input(node, 5));
    const bool read = key.known_rank && value.known_rank && key.shape.size() == 4 &&
                      value.shape.size() == 4 && Input(node, 6) == kNoValue;
    return read ? key.shape[2] : nullptr;
  }

  // The element of keys or values with the past in front of the new rows.
  Expr BehindPast(ValueId past, ValueId news, Expr length, std::vector<Expr> at,
                  const OperandShape& form) {
    if (past == kNoValue) return Element(news, at, form);
    const Expr t = at[2], before = At(past, at);
    // The new row is looked up at a free index, which is then replaced by its distance from the
    // past's end.
    const Expr free = Element(news, at, form);
    if (before == nullptr || free == nullptr) return nullptr;
    sym::Pool::Substitution shift;
    shift.indices = {nullptr, nullptr, nullptr, pool_.Sub(t, length)};
    const Expr behind = pool_.Substitute(free, shift, Facts{});
    return pool_.Select(pool_.Lt(t, length, r_.extents), before, behind);
  }

  bool ReadVisible(NodeId node, Expr queries, Expr past) {
    OperatorOrder order;
    order.queries = queries;
    order.past = past;
    if (const ValueId valid = Input(node, 6); valid != kNoValue) {
      // The valid lengths of an operator with a sink hide nothing.
      if (!has_sink_key_) order.valid = r_.valid = At(valid, {pool_.Index(0)});
      const sym::Form lengths = forms_.Of(valid);
      const bool read = has_sink_key_ || order.valid != nullptr;
      if (!read || lengths.shape.size() != 1) {
        return Fail("its valid length is not read");
      }
      r_.equal_extents.emplace_back(lengths.shape[0], r_.extents.extents[0]);
    }
    const int64_t causal = IntAttribute(graph_.node(node), "is_causal", 0);
    if (causal != 0 && causal != 1) return Fail("its is_causal is neither 0 nor 1");
    order.causal = causal == 1;
    if (order.causal || order.valid != nullptr) See(VisibleIn(pool_, order, r_.extents), {});
    const ValueId mask = Input(node, 3);
    if (mask == kNoValue) return true;
    Facts columns = r_.extents;
    const Expr last = columns.extents[3];
    if (has_sink_key_) columns.extents[3] = pool_.Add(last, pool_.Integer(1));
    const auto shape = ReadMaskShape(forms_, mask, columns);
    if (!shape) return Fail("its mask is not read");
    if (!ReadSinkColumn(mask, *shape, last)) return false;
    r_.equal_extents.insert(r_.equal_extents.end(), shape->equal_extents.begin(),
                            shape->equal_extents.end());
    if (shape->is_short) {
      See(pool_.Lt(pool_.Index(3), shape->width, r_.extents), {});
      r_.grounds.AddLemma(lemmas::kShortMask);
    }
    const Expr e = forms_.At(mask, shape->at, r_.extents);
    if (forms_.ElementType(mask) == TensorProto::BOOL) {
      See(e, {});
      return true;
    }
    return AddBias(e);
  }

  sym::Forms& forms_;
  const Graph& graph_;
  sym::Pool& pool_;
  int64_t heads_;
  bool has_sink_key_ = false;  // the last key of an operator is that of a sink
  AttentionReading r_;
  // The multiplications of the scores, from the softmax back to the product or the tanh.
  std::vector<Multiplication> factors_;
};

}  // namespace

AttentionReading ReadAttention(sym::Forms& forms, ValueId result, int64_t heads) {
  return Reader(forms, heads).Run(result);
}

}  // namespace kvlift
