#include "proof/proof.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "onnxio/model.h"
#include "proof/attention_reading.h"
#include "proof/correspondence.h"
#include "proof/counting.h"
#include "proof/operands.h"
#include "proof/pair.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

class Prover {
 public:
  Prover(const GraphPair& pair, const Manifest& relation)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        relation_(relation),
        twins_(pair, relation),
        counting_(forms_) {}

  Proof Run() {
    absl::flat_hash_map<NodeId, const ManifestCache*> writes;
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId present = pair_.After(cache.output);
      if (present != kNoValue) writes[graph_.producer(present)] = &cache;
    }
    // In topological order: what a node reads has its twin before it is looked at.
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!pair_.IsOfAfter(n)) continue;
      if (const auto it = writes.find(n); it != writes.end()) {
        ProveCache(*it->second);
      } else if (!graph_.Is(n, "Attention") || !ProveAttention(n)) {
        MatchNode(n);
      }
    }
    for (const ManifestOutput& output : relation_.outputs) {
      if (output.as != "cache") ProveOutput(output);
    }
    return std::move(proof_);
  }

 private:
  void Add(const std::string& about, std::string text, const std::string& why_not) {
    proof_.facts.push_back({about, std::move(text), why_not.empty(), {}, why_not});
  }

  // The fact that two elements are one, wherever `known` holds.
  bool AddEqual(const std::string& about, std::string text, Expr mine, Expr theirs, Expr known,
                const Facts& facts) {
    std::vector<std::string> given;
    mine = AsTruth(mine);
    theirs = AsTruth(theirs);
    known = AsTruth(known);
    bool equal = Equal(mine, theirs, known, facts);
    if (!equal && mine != nullptr && theirs != nullptr) {
      std::vector<std::string> vectors;
      const Expr x = counting_.CountedUp(mine, facts, &vectors);
      const Expr y = counting_.CountedUp(theirs, facts, &vectors);
      equal = Equal(x, y, counting_.CountedUp(known, facts, &vectors), facts);
      if (equal) given = std::move(vectors);
    }
    std::string why_not;
    if (!equal) why_not = fmt::format("{} is not seen to be {}", Text(mine), Text(theirs));
    for (const std::string& name : given) {
      if (IsPrecondition(name)) continue;
      why_not = fmt::format("it holds if {} counts up, and no precondition says so", name);
    }
    proof_.facts.push_back(
        {about, std::move(text), why_not.empty(), std::move(given), std::move(why_not)});
    return proof_.facts.back().proved;
  }

  bool IsPrecondition(const std::string& input) const {
    return std::any_of(
        relation_.preconditions.begin(), relation_.preconditions.end(),
        [&](const Precondition& p) { return p.text.find(input) != std::string::npos; });
  }

  // Are they the same wherever `known` holds? Predicates are if each implies the other.
  bool Equal(Expr mine, Expr theirs, Expr known, const Facts& facts) {
    if (mine == nullptr || theirs == nullptr) return false;
    if (mine == theirs) return true;
    const Expr a = Under(mine, known, facts), b = Under(theirs, known, facts);
    if (a == b) return true;
    if (a->is_predicate() && b->is_predicate()) {
      return Implies(pool_.And(known, a), b, facts) && Implies(pool_.And(known, b), a, facts);
    }
    if (a->kind() != sym::Kind::kSelect || b->kind() != sym::Kind::kSelect) return false;
    const auto p = a->args(), q = b->args();
    // Either may be written with its branches the other way round.
    return SameCases(p[0], p[1], p[2], q[0], q[1], q[2], known, facts) ||
           SameCases(pool_.Not(p[0]), p[2], p[1], q[0], q[1], q[2], known, facts);
  }

  // Truth values that are read as they are, as comparisons with 0.
  Expr AsTruth(Expr e) {
    if (e == nullptr) return nullptr;
    sym::Pool::Substitution s;
    for (Expr load : sym::OuterLoadsOf(e)) {
      if (forms_.ElementType(load->source()) != onnx::TensorProto::BOOL) continue;
      s.atoms[load] = pool_.Not(pool_.Eq(load, pool_.Integer(0), Facts{}));
    }
    return s.atoms.empty() ? e : pool_.Substitute(e, s, Facts{});
  }

  bool SameCases(Expr p, Expr then, Expr otherwise, Expr q, Expr their_then, Expr their_otherwise,
                 Expr known, const Facts& facts) {
    return Equal(p, q, known, facts) && Equal(then, their_then, pool_.And(known, p), facts) &&
           Equal(otherwise, their_otherwise, pool_.And(known, pool_.Not(p)), facts);
  }

  Expr Under(Expr e, Expr known, const Facts& facts) {
    for (Expr part : sym::ConjunctsOf(known)) e = pool_.Assume(e, part, true, facts);
    return e;
  }

  std::string Text(Expr e) const { return e == nullptr ? "?" : sym::ToString(e, &graph_); }

  // The source's element at the place that the conversion's layout calls i0, i1, ...
  Expr SourceElement(const ManifestCache& cache, ValueId value, absl::Span<const Expr> at,
                     const Facts& facts) {
    const std::vector<Expr> own = twins_.SourcePlace(pair_.After(cache.input), at);
    const sym::Form form = forms_.Of(value);
    if (!form.known_rank || form.shape.size() != own.size()) return nullptr;
    return twins_.Normal(forms_.At(value, own, facts), facts);
  }

  void ProveCache(const ManifestCache& cache) {
    const std::string same = cache.source.growing
                                 ? "rows [0, P + S) hold what the source's present holds"
                                 : "every row holds what the source's present holds";
    const std::string rest = "rows from P + S on are the past's own";
    if (cache.grows || cache.source.kind == "window" || cache.source.kind == "shift" ||
        (cache.source.growing && twins_.past() == nullptr)) {
      Add(cache.id, same, "rows of the source move or leave");
      if (cache.source.growing) Add(cache.id, rest, "rows of the source move or leave");
      return;
    }
    const ValueId present = pair_.After(cache.output);
    const sym::Form form = forms_.Of(present);
    if (!form.known_rank || form.shape.size() != cache.layout.size()) {
      return Add(cache.id, same, "the present's form is not known");
    }
    const auto axis = static_cast<size_t>(cache.axis);
    const auto batch = cache.layout.find('B');
    std::vector<Expr> at;
    for (size_t k = 0; k < form.shape.size(); ++k) at.push_back(pool_.Index(static_cast<int>(k)));
    const Expr sequence = at[batch];
    Facts facts{form.shape};
    if (cache.source.growing) facts.extents[axis] = twins_.total();
    const Expr mine = twins_.Translate(forms_.At(present, at, facts), sequence, facts);
    const Expr theirs = SourceElement(cache, pair_.Before(cache.source.output), at, facts);
    AddEqual(cache.id, same, mine, theirs, pool_.True(), facts);
    if (!cache.source.growing) return;
    // i_axis counts from P + S on.
    facts.extents[axis] = nullptr;
    at[axis] = pool_.Add(at[axis], twins_.total());
    const Expr behind = twins_.Translate(Behind(present, at, sequence, facts), sequence, facts);
    AddEqual(cache.id, rest, behind, SourcePlace(cache, at), pool_.True(), facts);
  }

  // P in the places is the conversion's own write index; its element is looked up with a free
  // index, and only then is the index put behind the new rows.
  Expr Behind(ValueId present, const std::vector<Expr>& at, Expr sequence, const Facts& facts) {
    std::vector<Expr> free;
    for (size_t k = 0; k < at.size(); ++k) free.push_back(pool_.Index(static_cast<int>(k)));
    const Expr e = twins_.Translate(forms_.At(present, free, Facts{}), sequence, Facts{});
    if (e == nullptr) return nullptr;
    sym::Pool::Substitution s;
    s.indices = at;
    return pool_.Substitute(e, s, facts);
  }

  // The source's past at the place that the conversion's layout calls at.
  Expr SourcePlace(const ManifestCache& cache, const std::vector<Expr>& at) {
    const ValueId past = pair_.After(cache.input);
    return twins_.Translate(pool_.Load(past, at), at[cache.layout.find('B')], Facts{});
  }

  bool ReadsPast(Expr e) const {
    for (ValueId source : sym::SourcesOf(e)) {
      for (const ManifestCache& cache : relation_.caches) {
        if (source == pair_.After(cache.input)) return true;
      }
    }
    return false;
  }

  // False if the node has nothing to do with caches.
  bool ProveAttention(NodeId node) {
    const ValueId result = graph_.outputs(node)[0];
    const AttentionReading after = ReadAttention(forms_, result);
    if (after.why_not.empty() && !ReadsPast(after.key) && !ReadsPast(after.value)) return false;
    const std::string name = pair_.NameOf(result);
    const ValueId theirs = pair_.Before(name);
    if (theirs == kNoValue) {
      Add(name, "is the source's attention", "the source has no value of this name");
      return true;
    }
    const AttentionReading before = ReadAttention(forms_, theirs);
    twins_.TakeDoubt();
    bool proved = false;
    if (std::string why = !after.why_not.empty() ? after.why_not : before.why_not; !why.empty()) {
      Add(name, "is the source's attention", why);
    } else {
      proved = CompareAttentions(name, before, after);
    }
    twins_.SetTwin(result, theirs, twins_.TakeDoubt() || !proved);
    return true;
  }

  bool CompareAttentions(const std::string& name, const AttentionReading& before,
                         const AttentionReading& after) {
    const Expr sequence = pool_.Index(0);
    Facts facts = before.extents;
    for (Expr& extent : facts.extents) extent = twins_.Normal(extent, Facts{});
    Facts values = facts;
    values.extents[4] = before.size_of_value;
    const Expr mine = twins_.Translate(after.visible, sequence, facts);
    const Expr theirs = twins_.Normal(before.visible, facts);
    // Keys that no query sees do not matter.
    const Expr seen = mine == nullptr ? pool_.True() : pool_.And(mine, theirs);
    const auto compare = [&](const std::string& text, Expr x, Expr y, Expr known,
                             const Facts& where) {
      return AddEqual(name, text, twins_.Translate(x, sequence, where), twins_.Normal(y, where),
                      known, where);
    };
    bool all =
        compare("reads the source's queries", after.query, before.query, pool_.True(), facts);
    all &= compare("reads the source's keys, each head those of its group", after.key, before.key,
                   seen, facts);
    all &= compare("reads the source's values", after.value, before.value, seen, values);
    all &= AddEqual(name, "shows each query the source's keys", mine, theirs, pool_.True(), facts);
    all &= HidesRest(name, before, after, facts);
    all &= SameBias(name, before, after, seen, facts);
    const bool scaled = std::abs(before.scale - after.scale) <= 1e-6 * std::abs(before.scale);
    const bool capped = std::abs(before.softcap - after.softcap) <= 1e-6 * before.softcap;
    const bool typed = before.softmax_type == after.softmax_type;
    const auto numbers = [](const AttentionReading& r) {
      return fmt::format("scale {}, softcap {} and a softmax in {}", r.scale, r.softcap,
                         ElementTypeName(r.softmax_type));
    };
    Add(name, "has the source's scale, softcap and precision of the softmax",
        scaled && capped && typed
            ? ""
            : fmt::format("{} instead of {}", numbers(after), numbers(before)));
    return all && scaled && capped && typed;
  }

  // What is added to the scores of keys that are seen; in any order.
  bool SameBias(const std::string& name, const AttentionReading& before,
                const AttentionReading& after, Expr seen, const Facts& facts) {
    if (before.bias.empty() && after.bias.empty()) return true;
    std::vector<Expr> open;
    for (Expr e : before.bias) open.push_back(twins_.Normal(e, facts));
    std::string why_not;
    for (Expr e : after.bias) {
      const Expr mine = twins_.Translate(e, pool_.Index(0), facts);
      const auto same = std::find_if(open.begin(), open.end(),
                                     [&](Expr theirs) { return Equal(mine, theirs, seen, facts); });
      if (same == open.end()) {
        why_not = fmt::format("{} ({}) is none of the source's", Text(e), Text(mine));
        break;
      }
      open.erase(same);
    }
    if (why_not.empty() && !open.empty()) {
      why_not = fmt::format("{} is not added", Text(open.front()));
    }
    Add(name, "adds the source's bias to its scores", why_not);
    return why_not.empty();
  }

  // The capacity of the cache that an expression reads; null if it reads none.
  Expr CapacityOf(Expr e) {
    for (const ManifestCache& cache : relation_.caches) {
      const ValueId past = pair_.After(cache.input);
      for (ValueId source : sym::SourcesOf(e)) {
        if (source == past) return forms_.Of(past).shape[static_cast<size_t>(cache.axis)];
      }
    }
    return nullptr;
  }

  // Keys that the source does not even have.
  bool HidesRest(const std::string& name, const AttentionReading& before,
                 const AttentionReading& after, const Facts& facts) {
    const Expr end = twins_.Normal(before.extents.extents[3], Facts{});
    if (end == CapacityOf(after.key)) return true;
    // i3 counts from there on.
    Facts behind = facts;
    behind.extents[3] = nullptr;
    sym::Pool::Substitution shift;
    shift.indices = {nullptr, nullptr, nullptr, pool_.Add(pool_.Index(3), end)};
    Expr seen = twins_.Translate(after.visible, pool_.Index(0), Facts{});
    if (seen != nullptr) seen = pool_.Substitute(seen, shift, behind);
    const bool hidden = seen != nullptr && seen->is_integer(0);
    const bool ends = twins_.Translate(after.extents.extents[3], pool_.Index(0), Facts{}) == end;
    Add(name, "shows no query a key behind the source's last",
        hidden || ends ? "" : fmt::format("{} may be seen", Text(seen)));
    return hidden || ends;
  }

  // x == 0 as x <= 0 and -x <= 0.
  std::vector<Expr> Bounds(Expr predicate) {
    std::vector<Expr> bounds;
    for (Expr part : sym::ConjunctsOf(predicate)) {
      if (part->kind() != sym::Kind::kEq) {
        bounds.push_back(part);
        continue;
      }
      const Expr x = part->args()[0], zero = pool_.Integer(0);
      bounds.push_back(pool_.Le(x, zero, Facts{}));
      bounds.push_back(pool_.Le(zero, x, Facts{}));
    }
    return bounds;
  }

  // Each part of q holds where p does.
  bool Implies(Expr p, Expr q, const Facts& facts) {
    std::vector<Expr> known = Bounds(p);
    for (Expr part : sym::ConjunctsOf(p)) known.push_back(part);
    for (Expr left : Bounds(q)) {
      for (Expr part : known) left = pool_.Assume(left, part, true, facts);
      if (!left->is_integer(1) && pool_.Prove(left, facts) != sym::Truth::kYes) return false;
    }
    return true;
  }

  bool SameValue(ValueId after, ValueId before) {
    if (after == before || twins_.IsTwin(after, before)) return true;
    if (after == kNoValue || before == kNoValue) return false;
    const sym::Form mine = forms_.Of(after), theirs = forms_.Of(before);
    if (!mine.known_rank || !theirs.known_rank || mine.shape.size() < theirs.shape.size()) {
      return false;
    }
    if (forms_.ElementType(after) != forms_.ElementType(before)) return false;
    std::vector<Expr> at, own;
    for (size_t k = 0; k < mine.shape.size(); ++k) at.push_back(pool_.Index(static_cast<int>(k)));
    const size_t more = mine.shape.size() - theirs.shape.size();
    for (size_t k = 0; k < theirs.shape.size(); ++k) {
      const bool one = theirs.shape[k]->is_integer(1);
      own.push_back(one ? pool_.Integer(0) : at[more + k]);
    }
    const Facts facts{mine.shape};
    // Values that differ by sequence have the batch in front.
    const Expr sequence = at.empty() ? pool_.Integer(0) : at[0];
    const Expr mine_at = forms_.At(after, at, facts);
    const Expr other = twins_.Normal(forms_.At(before, own, facts), facts);
    const Expr e = twins_.Translate(mine_at, sequence, facts);
    if (e == nullptr || e == other) return e != nullptr;
    Facts known = facts;
    for (Expr& extent : known.extents) extent = twins_.Extent(extent, sequence);
    const Expr within = twins_.Translate(mine_at, sequence, known);
    if (within != nullptr && within == other) return true;
    if (within != nullptr && Equal(AsTruth(within), AsTruth(other), pool_.True(), known))
      return true;
    return Equal(AsTruth(e), AsTruth(other), pool_.True(), known);
  }

  // What became an input with a later opset is compared there.
  static bool SameAttributes(const onnx::NodeProto& a, const onnx::NodeProto& b) {
    return AttributeTexts(a, "axes") == AttributeTexts(b, "axes");
  }

  // Axes of a reduction, an attribute or an input; empty if they are not constant.
  std::optional<std::vector<Expr>> Axes(NodeId n) {
    std::vector<Expr> axes;
    for (int64_t axis : IntsAttribute(graph_.node(n), "axes")) axes.push_back(pool_.Integer(axis));
    if (!axes.empty()) return axes;
    const ValueId input = graph_.inputs(n).size() > 1 ? graph_.inputs(n)[1] : kNoValue;
    return input == kNoValue ? std::nullopt : forms_.Elements(input);
  }

  bool SameInputs(NodeId mine, NodeId theirs) {
    const auto a = graph_.inputs(mine), b = graph_.inputs(theirs);
    size_t count = std::max(a.size(), b.size());
    const bool reduces = graph_.node(mine).op_type().rfind("Reduce", 0) == 0;
    if (reduces && a.size() != b.size()) {
      if (Axes(mine) != Axes(theirs)) return false;
      count = 1;
    }
    for (size_t k = 0; k < count; ++k) {
      const ValueId x = k < a.size() ? a[k] : kNoValue, y = k < b.size() ? b[k] : kNoValue;
      if (x != y && !SameValue(x, y)) return false;
    }
    return true;
  }

  // A node of the same operator over the same values gives the same values.
  void MatchNode(NodeId node) {
    const ValueId first = graph_.outputs(node)[0];
    const ValueId theirs = pair_.Before(pair_.NameOf(first));
    const NodeId other = theirs == kNoValue ? kNoNode : graph_.producer(theirs);
    if (other == kNoNode) return;
    twins_.TakeDoubt();
    if (graph_.node(node).op_type() != graph_.node(other).op_type() ||
        graph_.node(node).domain() != graph_.node(other).domain() ||
        graph_.outputs(node).size() != graph_.outputs(other).size() ||
        !SameAttributes(graph_.node(node), graph_.node(other)) || !SameInputs(node, other) ||
        !SameExtents(pair_, twins_, node, other)) {
      // What it is in fact, running both models tells; places are judged as if it were the same.
      const bool moves = graph_.outputs(node).size() == graph_.outputs(other).size() &&
                         IsFloatType(forms_.ElementType(first));
      if (moves && !SameValue(first, theirs)) SetTwins(node, other, true);
      return;
    }
    SetTwins(node, other, twins_.TakeDoubt());
  }

  void SetTwins(NodeId mine, NodeId theirs, bool doubted) {
    for (size_t k = 0; k < graph_.outputs(mine).size(); ++k) {
      const ValueId x = graph_.outputs(mine)[k], y = graph_.outputs(theirs)[k];
      if (x != kNoValue && y != kNoValue) twins_.SetTwin(x, y, doubted);
    }
  }

  void ProveOutput(const ManifestOutput& output) {
    const ValueId mine = pair_.After(output.name);
    const ValueId theirs = pair_.Before(output.source.empty() ? output.name : output.source);
    twins_.TakeDoubt();
    const bool same =
        mine != kNoValue && theirs != kNoValue && SameValue(mine, theirs) && !twins_.TakeDoubt();
    Add(output.name, "outside the attentions, the source's operators over the source's values",
        same ? "" : "some operator, or what it reads, is another one");
  }

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Manifest& relation_;
  Correspondence twins_;
  Counting counting_;
  Proof proof_;
};

}  // namespace

Proof ProveConversion(const onnx::ModelProto& before, const onnx::ModelProto& after,
                      const Manifest& relation) {
  Proof proof;
  const auto flat = InlineFunctions(before), result = InlineFunctions(after);
  if (!flat.ok() || !result.ok()) {
    proof.not_tried = "model-local functions cannot be inlined";
    return proof;
  }
  const auto pair = GraphPair::Create(*flat, *result, relation);
  if (!pair.ok()) {
    proof.not_tried = std::string(pair.status().message());
    return proof;
  }
  return Prover(*pair, relation).Run();
}

}  // namespace kvlift
