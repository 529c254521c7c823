#include "proof/attention_reading.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "proof/lemmas/names.h"
#include "proof/lemmas/nan_guard.h"
#include "proof/lemmas/short_mask.h"
#include "proof/lemmas/softmax_precision.h"
#include "proof/number.h"
#include "proof/product.h"
#include "sym/broadcast.h"
#include "sym/keeps_value.h"

namespace kvlift {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Facts;
using sym::Kind;

// A number that is added to a score is taken to hide the key if it is no larger than this. Which
// numbers these are is part of what is read: finite ones hide under a condition only.
constexpr double kHidden = -1e4;
constexpr int kMostSteps = 64;

class Reader {
 public:
  Reader(sym::Forms& forms, int64_t heads)
      : forms_(forms), graph_(forms.graph()), pool_(forms.pool()), heads_(heads) {}

  AttentionReading Run(ValueId result) {
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

  // The axes of batch and head of a value of this rank, at i0 and i1.
  std::vector<Expr> Front(size_t rank) {
    const Expr b = pool_.Index(0), h = pool_.Index(1);
    if (rank == 4) return {b, h};
    return {pool_.Add(pool_.Mul(b, pool_.Integer(heads_)), h)};
  }

  // The place i0, i1, i2, `last` in a value of this rank.
  std::vector<Expr> Here(size_t rank, Expr last) {
    std::vector<Expr> here = Front(rank);
    here.push_back(pool_.Index(2));
    here.push_back(last);
    return here;
  }

  // The element in row r, column c of an operand of a product of this rank.
  Expr Cell(ValueId v, size_t rank, Expr r, Expr c, bool turned) {
    std::vector<Expr> front = Front(rank);
    front.push_back(turned ? c : r);
    front.push_back(turned ? r : c);
    return At(v, front);
  }

  // The element of an operand that is broadcast to args.
  Expr At(ValueId v, absl::Span<const Expr> args) {
    return sym::BroadcastAt(forms_, v, args, r_.extents);
  }

  struct Factored {
    Expr element = nullptr;
    double factor = 1;
  };

  // What a node hands on exactly; null if it is another node.
  Expr Passed(Expr e, NodeId n) {
    const auto passed = sym::PassedThrough(forms_, n);
    if (!passed || passed->fidelity != sym::Fidelity::kExact) return nullptr;
    if (!graph_.Is(n, "Identity")) AddLemma(lemmas::kExactCast);
    return At(graph_.inputs(n)[static_cast<size_t>(passed->input)], e->args());
  }

  void AddLemma(const char* name) {
    if (std::find(r_.lemmas.begin(), r_.lemmas.end(), name) == r_.lemmas.end()) {
      r_.lemmas.emplace_back(name);
    }
  }

  // One multiplication or division by a number, or one exact cast, in front of e; null if there is
  // none.
  Expr Peeled(Expr e, double* factor) {
    if (e->kind() != Kind::kLoad) return nullptr;
    const NodeId n = graph_.producer(e->source());
    if (n == kNoNode) return nullptr;
    if (const Expr same = Passed(e, n); same != nullptr) return same;
    const bool divides = graph_.Is(n, "Div");
    if (!divides && !graph_.Is(n, "Mul")) return nullptr;
    for (int k : {1, 0}) {
      const auto number = NumberOf(forms_, graph_.inputs(n)[k]);
      if (!number || (divides && k == 0)) continue;
      *factor *= divides ? 1 / *number : *number;
      AddLemma(lemmas::kScaleMoved);
      return At(graph_.inputs(n)[1 - k], e->args());
    }
    return nullptr;
  }

  Factored Peel(Expr e) {
    Factored result{e, 1};
    for (int k = 0; result.element != nullptr && k < kMostSteps; ++k) {
      const Expr inner = Peeled(result.element, &result.factor);
      if (inner == nullptr) break;
      result.element = inner;
    }
    return result;
  }

  Expr HiddenByNumber(double number, Expr where) {
    if (!(number <= kHidden)) return nullptr;
    if (std::isfinite(number)) r_.hidden_by.insert(number);
    return where;
  }

  // Where an added number hides a key; null if it is not plain that it is 0 elsewhere.
  Expr HiddenBy(Expr e) {
    if (e == nullptr) return nullptr;
    switch (e->kind()) {
      case Kind::kInteger:
        if (e->value() == 0) return pool_.False();
        return HiddenByNumber(static_cast<double>(e->value()), pool_.True());
      case Kind::kFloat:
        return HiddenByNumber(e->float_value(), pool_.True());
      case Kind::kSelect: {
        const Expr c = e->args()[0], a = HiddenBy(e->args()[1]), b = HiddenBy(e->args()[2]);
        if (a == nullptr || b == nullptr) return nullptr;
        return pool_.Or(pool_.And(c, a), pool_.And(pool_.Not(c), b));
      }
      case Kind::kSum: {
        Expr any = pool_.False();
        for (const sym::Term& term : e->terms()) {
          if (term.atoms.size() != 1) return nullptr;
          const Expr atom = term.atoms[0];
          Expr hidden = nullptr;
          if (atom->is_predicate()) {
            hidden = HiddenByNumber(static_cast<double>(term.coefficient), atom);
          } else if (term.coefficient == 1) {
            hidden = HiddenBy(atom);
          }
          if (hidden == nullptr) return nullptr;
          any = pool_.Or(any, hidden);
        }
        return any;
      }
      default:
        return nullptr;
    }
  }

  // The softmax behind the left operand of the second product; sets where of its operand. to: the
  // type of that product.
  NodeId FindSoftmax(Expr e, int32_t to, std::vector<Expr>* where) {
    for (int k = 0; e != nullptr && k < kMostSteps; ++k) {
      if (e->kind() == Kind::kSelect) {
        e = WithoutNanGuard(forms_, e);
        if (e == nullptr) return kNoNode;
        r_.nan_guard = true;
        AddLemma(lemmas::kNanGuard);
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
      Expr inner = Passed(e, n);
      if (inner == nullptr && IsCastOfWeights(forms_, n, to)) {
        AddLemma(lemmas::kSoftmaxPrecision);
        inner = At(graph_.inputs(n)[0], e->args());
      }
      e = inner;
    }
    return kNoNode;
  }

  // The softmax takes one score for each key, and no other.
  bool IsOverKeys(NodeId softmax) {
    const sym::Form scores = forms_.Of(graph_.inputs(softmax)[0]);
    return scores.known_rank && !scores.shape.empty() &&
           scores.shape.back() == r_.extents.extents[3];
  }

  // From the softmax's operand to the first product: what is added, selected, multiplied.
  bool ReadScores(Expr e) {
    r_.visible = pool_.True();
    for (int k = 0; e != nullptr && k < kMostSteps; ++k) {
      if (e->kind() == Kind::kSelect) {
        const Expr c = e->args()[0], a = HiddenBy(e->args()[1]), b = HiddenBy(e->args()[2]);
        if (b != nullptr && b->is_integer(1)) {
          r_.visible = pool_.And(r_.visible, c);
          e = e->args()[1];
        } else if (a != nullptr && a->is_integer(1)) {
          r_.visible = pool_.And(r_.visible, pool_.Not(c));
          e = e->args()[2];
        } else {
          return Fail("a score is selected, and not against a number that hides it");
        }
        continue;
      }
      const NodeId n = e->kind() == Kind::kLoad ? graph_.producer(e->source()) : kNoNode;
      if (n == kNoNode) return Fail("the scores are no product of queries and keys");
      if (k == 0 && IsCastOfScores(forms_, n, r_.softmax_type)) {
        AddLemma(lemmas::kSoftmaxPrecision);
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
        r_.softcap = r_.scale;
        e = At(graph_.inputs(n)[0], e->args());
        continue;
      }
      e = Peeled(e, &r_.scale);
    }
    return Fail("the scores are not read");
  }

  Expr WithoutMask(NodeId n, Expr e) {
    for (int k : {1, 0}) {
      const Expr hidden = HiddenBy(At(graph_.inputs(n)[k], e->args()));
      if (hidden == nullptr) continue;
      r_.visible = pool_.And(r_.visible, pool_.Not(hidden));
      return At(graph_.inputs(n)[1 - k], e->args());
    }
    for (int k : {1, 0}) {
      const Expr scores = At(graph_.inputs(n)[1 - k], e->args());
      if (scores == nullptr || !LeadsToProduct(scores, 0)) continue;
      if (std::fabs(r_.scale - 1) > 1e-6 || r_.softcap != 0) break;
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
    double factor = 1;
    return LeadsToProduct(Peeled(e, &factor), depth + 1);
  }

  // What is added to the scores: where it hides a key, and what it adds elsewhere.
  bool AddBias(Expr e) {
    std::vector<Expr> terms;
    const Expr hidden = Split(e, &terms, 0);
    if (hidden == nullptr) return Fail("a bias is added to its scores that is not read");
    r_.visible = pool_.And(r_.visible, pool_.Not(hidden));
    r_.bias.insert(r_.bias.end(), terms.begin(), terms.end());
    return true;
  }

  // Where e hides a key; appends to `terms` what it is a sum of elsewhere. Null if it is not read.
  Expr Split(Expr e, std::vector<Expr>* terms, int depth) {
    if (e == nullptr || depth > kMostSteps) return nullptr;
    if (const Expr hidden = HiddenBy(e); hidden != nullptr) return hidden;
    if (e->kind() == Kind::kSelect) {
      const Expr c = e->args()[0], a = HiddenBy(e->args()[1]), b = HiddenBy(e->args()[2]);
      const bool first = b != nullptr && b->is_integer(1),
                 second = a != nullptr && a->is_integer(1);
      if (first || second) {
        const Expr more = Split(e->args()[first ? 1 : 2], terms, depth + 1);
        return more == nullptr ? nullptr : pool_.Or(more, first ? pool_.Not(c) : c);
      }
    }
    if (e->kind() == Kind::kLoad) {
      const NodeId n = graph_.producer(e->source());
      if (n != kNoNode && graph_.Is(n, "Add")) {
        const Expr a = Split(At(graph_.inputs(n)[0], e->args()), terms, depth + 1);
        const Expr b = Split(At(graph_.inputs(n)[1], e->args()), terms, depth + 1);
        return a == nullptr || b == nullptr ? nullptr : pool_.Or(a, b);
      }
      if (const Expr same = n == kNoNode ? nullptr : Passed(e, n); same != nullptr) {
        return Split(same, terms, depth + 1);
      }
    }
    terms->push_back(e);
    return pool_.False();
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
    return true;
  }

  // On axes of extent 1 the index is 0.
  bool SamePlace(absl::Span<const Expr> args, absl::Span<const Expr> here) const {
    if (args.size() != here.size()) return false;
    const size_t more = r_.extents.extents.size() - args.size();  // 0 unless heads are folded
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
    if (softmax == kNoNode || !SamePlace(where, Here(where.size(), t))) {
      return Fail("no softmax over the keys");
    }
    if (!IsOverKeys(softmax)) return Fail("its softmax is over other keys than are read");
    r_.softmax_type = forms_.ElementType(graph_.inputs(softmax)[0]);
    if (!ReadScores(At(graph_.inputs(softmax)[0], where))) return false;
    Facts facts = r_.extents;
    r_.extents.extents[4] = r_.size_of_value;
    r_.value = Cell(right, rank, t, pool_.Index(4), ProductOf(node)->right_turned);
    r_.extents = facts;
    return r_.value != nullptr || Fail("the values are not read");
  }

  ValueId Input(NodeId node, size_t k) const {
    return k < graph_.inputs(node).size() ? graph_.inputs(node)[k] : kNoValue;
  }

  // An operator's operand as [B, N, S, D], which it may be given as [B, S, N * D].
  struct OperandShape {
    std::vector<Expr> shape;
    bool joined = false;
  };

  std::optional<OperandShape> ByHeads(ValueId v, int64_t heads) {
    const sym::Form form = forms_.Of(v);
    if (!form.known_rank) return std::nullopt;
    if (form.shape.size() == 4) return OperandShape{form.shape, false};
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

  // The attributes of Attention-24 but for those that only say what else is given out.
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
    if (heads->value() < 1 || kv_heads->value() < 1 || heads->value() % kv_heads->value() != 0) {
      return Fail("its heads do not fit each other");
    }
    const Expr past = PastOf(node);
    if (past == nullptr) return Fail("it keeps a past that is not read");
    r_.equal_extents = {{k.shape[0], q.shape[0]},
                        {v.shape[0], q.shape[0]},
                        {v.shape[1], kv_heads},
                        {k.shape[2], v.shape[2]},
                        {k.shape[3], q.shape[3]}};
    if (heads != kv_heads) AddLemma(lemmas::kHeadsRegrouped);
    r_.extents.extents = {q.shape[0], heads, q.shape[2], pool_.Add(past, k.shape[2]), q.shape[3]};
    r_.size_of_value = v.shape[3];
    const Expr b = pool_.Index(0), h = pool_.Index(1), s = pool_.Index(2), t = pool_.Index(3),
               d = pool_.Index(4);
    const Expr group = pool_.Integer(heads->value() / kv_heads->value());
    const Expr hk = pool_.FloorDiv(h, group, r_.extents);
    r_.query = Element(Input(node, 0), {b, h, s, d}, q);
    r_.key = BehindPast(Input(node, 4), Input(node, 1), past, {b, hk, t, d}, k);
    Facts facts = r_.extents;
    r_.extents.extents[4] = r_.size_of_value;
    r_.value = BehindPast(Input(node, 5), Input(node, 2), past, {b, hk, t, d}, v);
    r_.extents = facts;
    const Factored query = Peel(r_.query);
    r_.query = query.element;
    const onnx::NodeProto& proto = graph_.node(node);
    const auto usual = static_cast<float>(1 / std::sqrt(static_cast<double>(q.shape[3]->value())));
    r_.scale = FloatAttribute(proto, "scale", usual) * query.factor;
    r_.softcap = FloatAttribute(proto, "softcap", 0);
    r_.softmax_type = static_cast<int32_t>(
        IntAttribute(proto, "softmax_precision", forms_.ElementType(Input(node, 0))));
    if (r_.key == nullptr || r_.value == nullptr || r_.query == nullptr) {
      return Fail("its operands are not read");
    }
    return ReadVisible(node, q.shape[2], past);
  }

  // How many keys an operator's own past has.
  Expr PastOf(NodeId node) {
    if (Input(node, 4) == kNoValue) return pool_.Integer(0);
    const sym::Form key = forms_.Of(Input(node, 4)), value = forms_.Of(Input(node, 5));
    const bool read = key.known_rank && value.known_rank && key.shape.size() == 4 &&
                      value.shape.size() == 4 && Input(node, 6) == kNoValue;
    return read ? key.shape[2] : nullptr;
  }

  // Keys or values with those of the past in front.
  Expr BehindPast(ValueId past, ValueId news, Expr length, std::vector<Expr> at,
                  const OperandShape& form) {
    if (past == kNoValue) return Element(news, at, form);
    const Expr t = at[2], before = At(past, at);
    // The index of a new row is looked up freely, and only then counted from the past's end.
    const Expr free = Element(news, at, form);
    if (before == nullptr || free == nullptr) return nullptr;
    sym::Pool::Substitution shift;
    shift.indices = {nullptr, nullptr, nullptr, pool_.Sub(t, length)};
    const Expr behind = pool_.Substitute(free, shift, Facts{});
    return pool_.Select(pool_.Lt(t, length, r_.extents), before, behind);
  }

  // The text of Attention-24: with nonpad_kv_seqlen a causal order ends at the last valid key,
  // without it token s sees the past and as many keys more as its number.
  bool ReadVisible(NodeId node, Expr queries, Expr past) {
    const Expr b = pool_.Index(0), s = pool_.Index(2), t = pool_.Index(3);
    r_.visible = pool_.True();
    Expr behind = pool_.Add(past, s);  // the last key that token s may see
    if (const ValueId valid = Input(node, 6); valid != kNoValue) {
      const Expr n = At(valid, {b});
      if (n == nullptr) return Fail("its valid length is not read");
      r_.valid = n;
      r_.visible = pool_.Lt(t, n, r_.extents);
      behind = pool_.Add(s, pool_.Sub(n, queries));
    }
    const int64_t causal = IntAttribute(graph_.node(node), "is_causal", 0);
    if (causal != 0 && causal != 1) return Fail("its is_causal is neither 0 nor 1");
    if (causal == 1) {
      r_.visible = pool_.And(r_.visible, pool_.Le(t, behind, r_.extents));
    }
    const ValueId mask = Input(node, 3);
    if (mask == kNoValue) return true;
    const auto shape = ReadMaskShape(forms_, mask, r_.extents);
    if (!shape) return Fail("its mask is not read");
    r_.equal_extents.insert(r_.equal_extents.end(), shape->equal_extents.begin(),
                            shape->equal_extents.end());
    if (shape->is_short) {
      r_.visible = pool_.And(r_.visible, pool_.Lt(t, shape->width, r_.extents));
      AddLemma(lemmas::kShortMask);
    }
    const Expr e = forms_.At(mask, shape->at, r_.extents);
    AddLemma(lemmas::kMaskSplit);
    if (forms_.ElementType(mask) == TensorProto::BOOL) {
      r_.visible = pool_.And(r_.visible, e);
      return true;
    }
    return AddBias(e);
  }

  sym::Forms& forms_;
  const Graph& graph_;
  sym::Pool& pool_;
  int64_t heads_;
  AttentionReading r_;
};

}  // namespace

ValueId KeptAs(const Graph& graph, ValueId value) {
  NodeId n = graph.producer(value);
  if (n == kNoNode || graph.inputs(n).empty()) return kNoValue;
  if (graph.Is(n, "Mul")) {
    n = graph.inputs(n)[0] == kNoValue ? kNoNode : graph.producer(graph.inputs(n)[0]);
    if (n != kNoNode && !graph.Is(n, "DequantizeLinear")) return kNoValue;
  }
  const bool reads = n != kNoNode && (graph.Is(n, "DequantizeLinear") ||
                                      graph.Is(n, "BitwiseAnd") || graph.Is(n, "BitShift"));
  return reads && !graph.inputs(n).empty() ? graph.inputs(n)[0] : kNoValue;
}

AttentionReading ReadAttention(sym::Forms& forms, ValueId result, int64_t heads) {
  return Reader(forms, heads).Run(result);
}

}  // namespace kvlift
