#include "rewrite/recognise/attention/score.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "rewrite/recognise/attention/scalar.h"
#include "rewrite/types/matrix_product.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;
using sym::Forms;
using sym::Kind;
using sym::Pool;

// Scores are nowhere near these numbers, so adding one masks as -inf does, except in a fully masked
// row.
constexpr double kFiniteMinimum = -1e30;
constexpr double kHalfMinimum = -65504.0;
// Instead of a score, this number or a smaller one leaves a weight of 0, unless all scores of the
// row are as low. The proof states that they are not (proof/lemmas/finite_minimum.h).
constexpr double kReplacement = -1e4;
constexpr double kNegligible = -1000.0;
// A minimum that is multiplied by this factor or a larger one still masks.
constexpr double kLeastFactor = 1.0 / 64;
constexpr size_t kMaxBiases = 2;

// A multiplication or division by a constant scalar: its other operand, and the factor.
struct ScalarFactor {
  ValueId operand;
  double factor;
};
std::optional<ScalarFactor> ReadScalarFactor(Forms& forms, NodeId n) {
  const Graph& graph = forms.graph();
  if (graph.inputs(n).size() != 2) return std::nullopt;
  const ValueId a = graph.inputs(n)[0], b = graph.inputs(n)[1];
  if (graph.Is(n, "Mul")) {
    if (const auto c = ScalarConstant(forms, b)) return ScalarFactor{a, *c};
    if (const auto c = ScalarConstant(forms, a)) return ScalarFactor{b, *c};
  } else if (graph.Is(n, "Div")) {
    if (const auto c = ScalarConstant(forms, b); c && *c != 0) return ScalarFactor{a, 1.0 / *c};
  }
  return std::nullopt;
}

// Returns the number that the expression is; NaN if it is not a constant.
double ConstantOf(Expr e) {
  if (e->kind() == Kind::kFloat) return e->float_value();
  return e->kind() == Kind::kInteger ? static_cast<double>(e->value()) : std::nan("");
}

bool IsMinimum(double value) { return value <= kFiniteMinimum || value == kHalfMinimum; }

// Returns true if exp of the constant is negligible beside that of any score.
bool Hides(Expr e) { return ConstantOf(e) <= kNegligible; }

// Returns true if the constant hides a key whose score it replaces. One that is added to a score
// need not: it stays in the graph as a bias.
bool Replaces(Expr e) { return ConstantOf(e) <= kReplacement; }

class ScoreReader {
 public:
  ScoreReader(Forms& forms, const Facts& facts) : forms_(forms), facts_(facts) {
    score_.keep = score_.bias_keep = forms.pool().True();
  }

  ScoreResult Read(Expr e) {
    while (true) {
      if (e == nullptr) return Fail("a tensor of unknown rank");
      if (e->kind() == Kind::kSelect) {
        e = ReadSelect(e);
        if (e == nullptr) return Fail("a Where that is no mask");
        continue;
      }
      if (e->kind() != Kind::kLoad) return Fail("a constant");
      const NodeId n = forms_.graph().producer(e->source());
      if (n == kNoNode) return Fail("a graph input or constant");
      blame_ = n;
      if (const auto product = ReadProduct(forms_.graph(), n)) {
        score_.product = n;
        factor_ *= product->alpha;
        score_.product_args.assign(e->args().begin(), e->args().end());
        return Finish();
      }
      score_.nodes.push_back(n);
      const Expr next = Step(n, e);
      if (next == nullptr) return ReadBias(n, e);
      e = next;
    }
  }

 private:
  ScoreResult Fail(std::string why) { return {std::nullopt, std::move(why), blame_}; }

  ScoreResult Finish() {
    score_.factor = factor_;
    return {std::move(score_), {}, kNoNode};
  }

  // Returns true if a mask at this place also masks after the factor is applied.
  bool MaskFits() const { return factor_ >= kLeastFactor && score_.softcap == 0; }

  // Reads Select(keep, score, minimum), or the same with its branches swapped. Returns the score;
  // null if it is anything else.
  Expr ReadSelect(Expr e) {
    if (!MaskFits()) return nullptr;
    Pool& pool = forms_.pool();
    const Expr condition = e->args()[0];
    if (Replaces(e->args()[2])) {
      score_.keep = pool.And(score_.keep, condition);
      return e->args()[1];
    }
    if (Replaces(e->args()[1])) {
      score_.keep = pool.And(score_.keep, pool.Not(condition));
      return e->args()[2];
    }
    return nullptr;
  }

  // Returns the element of the operand that carries the scores; null, with why_ set, if n does not
  // fit.
  Expr Step(NodeId n, Expr e) {
    const Graph& graph = forms_.graph();
    if (const ValueId same = HandedOn(forms_, n, &score_.roundings); same != kNoValue) {
      return BroadcastOperand(forms_, same, e->args(), facts_);
    }
    if (const auto scalar = ReadScalarFactor(forms_, n)) {
      factor_ *= scalar->factor;
      return BroadcastOperand(forms_, scalar->operand, e->args(), facts_);
    }
    if (graph.Is(n, "Tanh")) {
      if (score_.softcap != 0 || factor_ <= 0) {
        why_ = "a second Tanh";
        return nullptr;
      }
      // cap * tanh(x): the factor so far is the cap, and x = factor / cap * product, so the factor
      // continues from the cap.
      score_.softcap = factor_;
      return BroadcastOperand(forms_, graph.inputs(n)[0], e->args(), facts_);
    }
    if (graph.Is(n, "Add") || graph.Is(n, "Sub")) return ReadSum(n, e);
    if (graph.Is(n, "Max")) return ReadMaximum(n, e);
    why_ = fmt::format("{}", graph.node(n).op_type());
    return nullptr;
  }

  // Reads an Add of scores and a mask, or a Sub of a mask from scores.
  Expr ReadSum(NodeId n, Expr e) {
    const Graph& graph = forms_.graph();
    if (!MaskFits()) {
      why_ = "a mask that is added before a softcap or a small scale";
      return nullptr;
    }
    const bool minus = graph.Is(n, "Sub");
    for (int k = minus ? 1 : 0; k < 2; ++k) {
      const Expr mask = BroadcastOperand(forms_, graph.inputs(n)[k], e->args(), facts_);
      if (mask == nullptr) continue;
      const Expr keep = ReadAdditiveMask(forms_.pool(), mask, minus);
      if (keep == nullptr) continue;
      score_.keep = forms_.pool().And(score_.keep, keep);
      return BroadcastOperand(forms_, graph.inputs(n)[1 - k], e->args(), facts_);
    }
    why_ = "an added bias that is not a mask of 0 and -inf";
    return nullptr;
  }

  // Reads Max(score, minimum), which keeps hidden scores finite and changes no visible one.
  Expr ReadMaximum(NodeId n, Expr e) {
    const auto inputs = forms_.graph().inputs(n);
    for (size_t k = 0; k < 2 && inputs.size() == 2 && MaskFits(); ++k) {
      const auto lowest = ScalarConstant(forms_, inputs[k]);
      if (!lowest || !IsMinimum(*lowest) || !IsMinimum(*lowest * factor_)) continue;
      return BroadcastOperand(forms_, inputs[1 - k], e->args(), facts_);
    }
    why_ = "a Max with other numbers than the lowest ones";
    return nullptr;
  }

  // Returns true if a value that broadcasts to [B, Nk, G, S, T] has both axes of heads in full, or
  // is the same for all heads.
  bool HasAllHeadsOrNone(ValueId bias) {
    const sym::Form form = forms_.Of(bias);
    if (!form.known_rank) return false;
    const size_t rank = form.shape.size();
    int in_full = 0, ones = 0;
    for (size_t behind = 3; behind <= 4; ++behind) {
      const bool one = behind > rank || form.shape[rank - behind]->is_integer(1);
      ++(one ? ones : in_full);
    }
    return ones == 2 || (in_full == 2 && rank == 5);
  }

  // If n adds a value to scores that can be read: returns those scores, with the value as a bias.
  ScoreResult ReadBias(NodeId n, Expr e) {
    const Graph& graph = forms_.graph();
    const HeadsOfScores heads = e->args().size() == 3   ? HeadsOfScores::kInBatch
                                : e->args().size() == 5 ? HeadsOfScores::kTwoAxes
                                                        : HeadsOfScores::kOneAxis;
    const bool fits =
        graph.Is(n, "Add") && factor_ == 1.0 && score_.softcap == 0 && e->args().size() <= 5;
    for (int k = 0; fits && k < 2 && score_.biases.size() < kMaxBiases; ++k) {
      const ValueId bias = graph.inputs(n)[k];
      if (heads == HeadsOfScores::kTwoAxes && !HasAllHeadsOrNone(bias)) continue;
      const Expr added = BroadcastOperand(forms_, bias, e->args(), facts_);
      if (added == nullptr) continue;
      ScoreReader reader = *this;
      reader.score_.biases.push_back({bias, heads});
      reader.score_.bias_keep =
          forms_.pool().And(score_.bias_keep, BiasKeepsKey(forms_.pool(), added));
      ScoreResult read =
          reader.Read(BroadcastOperand(forms_, graph.inputs(n)[1 - k], e->args(), facts_));
      if (read.score) return read;
    }
    return Fail(why_);
  }

  Forms& forms_;
  const Facts& facts_;
  Score score_;
  double factor_ = 1.0;
  std::string why_ = "something else";
  NodeId blame_ = kNoNode;
};

}  // namespace

bool KeepsNumbersOf(int32_t type, absl::Span<const int32_t> roundings) {
  return std::all_of(roundings.begin(), roundings.end(), [&](int32_t to) {
    return sym::CastFidelity(type, to) == sym::Fidelity::kExact;
  });
}

ValueId HandedOn(Forms& forms, NodeId node, Roundings* roundings) {
  const auto passed = sym::PassedThrough(forms, node);
  if (!passed || passed->fidelity < sym::Fidelity::kRounded) return kNoValue;
  const ValueId operand = forms.graph().inputs(node)[passed->input];
  const int32_t to = forms.ElementType(forms.graph().outputs(node)[0]);
  if (!IsFloatType(forms.ElementType(operand)) || !IsFloatType(to)) return kNoValue;
  if (passed->fidelity != sym::Fidelity::kExact) roundings->push_back(to);
  return operand;
}

Expr BroadcastOperand(Forms& forms, ValueId operand, absl::Span<const Expr> args,
                      const Facts& facts) {
  const sym::Form& form = forms.Of(operand);
  if (!form.known_rank || form.shape.size() > args.size()) return nullptr;
  const size_t skip = args.size() - form.shape.size();
  std::vector<Expr> at;
  for (size_t k = 0; k < form.shape.size(); ++k) {
    at.push_back(form.shape[k]->is_integer(1) ? forms.pool().Integer(0) : args[k + skip]);
  }
  return forms.At(operand, at, facts);
}

Scaled RemoveScale(Forms& forms, Expr element, const Facts& facts) {
  const Graph& graph = forms.graph();
  Scaled scaled;
  scaled.element = element;
  scaled.stages.push_back({element, 1.0, 0});
  while (scaled.element != nullptr && scaled.element->kind() == Kind::kLoad) {
    const NodeId n = graph.producer(scaled.element->source());
    if (n == kNoNode) break;
    ValueId operand = kNoValue;
    double factor = 1.0;
    Roundings roundings;
    if (const ValueId same = HandedOn(forms, n, &roundings); same != kNoValue) {
      operand = same;
    } else if (const auto scalar = ReadScalarFactor(forms, n)) {
      operand = scalar->operand;
      factor = scalar->factor;
    } else {
      break;
    }
    const Expr next = BroadcastOperand(forms, operand, scaled.element->args(), facts);
    if (next == nullptr) break;
    scaled.element = next;
    scaled.factor *= factor;
    scaled.nodes.push_back(n);
    scaled.roundings.insert(scaled.roundings.end(), roundings.begin(), roundings.end());
    scaled.stages.push_back({next, scaled.factor, scaled.roundings.size()});
  }
  return scaled;
}

Expr ReadAdditiveMask(Pool& pool, Expr mask, bool subtracted) {
  if (mask->is_integer(0)) return pool.True();
  const double number = ConstantOf(mask);
  // What is subtracted cannot stay in the graph as a bias.
  if (subtracted ? -number <= kReplacement : IsMinimum(number)) return pool.False();
  if (mask->kind() != Kind::kSelect) return nullptr;
  const Expr a = ReadAdditiveMask(pool, mask->args()[1], subtracted);
  const Expr b = ReadAdditiveMask(pool, mask->args()[2], subtracted);
  if (a == nullptr || b == nullptr) return nullptr;
  const Expr c = mask->args()[0];
  return pool.Or(pool.And(c, a), pool.And(pool.Not(c), b));
}

Expr BiasKeepsKey(Pool& pool, Expr element) {
  if (element->kind() != Kind::kSelect) return pool.True();
  const Expr c = element->args()[0], a = element->args()[1], b = element->args()[2];
  if (Hides(b)) return pool.And(c, BiasKeepsKey(pool, a));
  if (Hides(a)) return pool.And(pool.Not(c), BiasKeepsKey(pool, b));
  return pool.True();
}

ScoreResult ReadScore(Forms& forms, Expr element, const Facts& facts) {
  return ScoreReader(forms, facts).Read(element);
}

}  // namespace kvlift
