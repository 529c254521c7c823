#include "rewrite/branches/merged_decoder.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/node_builder.h"
#include "ir/patch.h"
#include "rewrite/branches/cross_caches.h"
#include "rewrite/branches/decoder_pair.h"
#include "rewrite/branches/if_branches.h"
#include "rewrite/branches/if_switch.h"
#include "rewrite/branches/value_numbering.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// An operand of the later call that lacks the causal order of new tokens.
struct MissingOrder {
  std::string output;  // the node's first output
  int operand;
  Expr masked;  // the constant of the first call where a key is hidden
  bool added;   // the first call adds a mask of 0 and `masked` to the later call's operand
};

struct OrderSearch {
  Expr added;  // the number of new tokens
  std::vector<MissingOrder> found;
};

void CollectLeaves(Expr e, std::vector<Expr>* leaves) {
  if (e->kind() == Kind::kSelect) {
    CollectLeaves(e->args()[1], leaves);
    CollectLeaves(e->args()[2], leaves);
    return;
  }
  if (e->is_predicate()) {
    leaves->push_back(nullptr);
  } else if (e->kind() == Kind::kInteger || e->kind() == Kind::kFloat) {
    leaves->push_back(e);
  }
}

// If `sum` is an element of the result of an Add, possibly in another shape, and one operand there
// is `part`: returns the other operand there; else null. The facts are about the indices in `sum`.
Expr Addend(ValueNumbering& self, Expr sum, Expr part, const sym::Facts& facts) {
  const Graph& graph = self.forms().graph();
  if (sum->kind() != Kind::kLoad) return nullptr;
  const NodeId n = graph.producer(sum->source());
  if (n == kNoNode || !graph.Is(n, "Add")) return nullptr;
  sym::Pool::Substitution place;
  place.indices.assign(sum->args().begin(), sum->args().end());
  const auto there = [&](int operand) -> Expr {
    const Expr e = self.OperandElement(n, operand);
    return e == nullptr ? nullptr : self.forms().pool().Substitute(e, place, facts);
  };
  for (int k = 0; k < 2; ++k) {
    if (self.Same(there(k), part)) return there(1 - k);
  }
  return nullptr;
}

// Returns true if the first call's operand equals the later call's where t <= s and is a constant
// elsewhere, or differs from it by an added mask. Adds what is missing to the search, `context`.
bool LacksOrder(void* context, ValueNumbering& self, const OperandGap& gap) {
  auto& search = *static_cast<OrderSearch*>(context);
  sym::Forms& forms = self.forms();
  sym::Pool& pool = forms.pool();
  const Graph& graph = forms.graph();
  const ValueId mine = graph.inputs(gap.node)[gap.operand];
  const ValueId other = graph.inputs(gap.partner)[gap.operand];
  if (mine == kNoValue || other == kNoValue) return false;
  if (forms.ElementType(mine) != forms.ElementType(other)) return false;
  const Expr have = self.OperandElement(gap.node, gap.operand);
  const Expr want = self.OperandElement(gap.partner, gap.operand);
  const sym::Form& out =
      forms.Of(self.Broadcasts(gap.node) ? graph.outputs(gap.partner)[0] : other);
  if (have == nullptr || want == nullptr || !out.known_rank || out.shape.size() < 2) return false;
  const int rank = static_cast<int>(out.shape.size());
  if (out.shape[rank - 1] != search.added || out.shape[rank - 2] != search.added) return false;
  const Expr order = pool.Le(pool.Index(rank - 1), pool.Index(rank - 2), {});
  const auto matches = [&](Expr seen, Expr whole, bool added) {
    std::vector<Expr> leaves;
    CollectLeaves(whole, &leaves);
    for (Expr leaf : leaves) {
      const Expr masked = leaf == nullptr ? pool.False() : leaf;
      if (!self.Same(pool.Select(order, seen, masked), whole)) continue;
      search.found.push_back({graph.name(graph.outputs(gap.node)[0]), gap.operand, masked, added});
      return true;
    }
    return false;
  };
  if (matches(have, want, false)) return true;
  if (!IsFloatType(forms.ElementType(mine))) return false;
  const Expr addend = Addend(self, want, have, sym::Facts{out.shape});
  return addend != nullptr && matches(pool.Integer(0), addend, true);
}

// Adds the causal order, t <= P + s, to operands of the later call.
class OrderAdder {
 public:
  OrderAdder(const Graph& graph, sym::Forms& forms, const Growth& growth, std::string past)
      : graph_(graph), forms_(forms), nodes_(graph), growth_(growth), past_(std::move(past)) {}

  // Returns false if a node of `missing` is not in the graph.
  bool Add(absl::Span<const MissingOrder> missing, const std::string& new_input, int new_axis,
           Patch* patch) {
    nodes_.set_scope("order");
    const std::string past = nodes_.Extent(past_, growth_.axis, "past_length");
    const std::string added = nodes_.Extent(new_input, new_axis, "new_length");
    const std::string first = nodes_.Add("Squeeze", {past}, "first");
    const std::string end =
        nodes_.Add("Squeeze", {nodes_.Add("Add", {past, added}, "total_length")}, "end");
    const std::string queries = nodes_.Add("Range", {first, end, nodes_.Int64(1)}, "queries");
    const std::string keys = nodes_.Add("Range", {nodes_.Int64(0), end, nodes_.Int64(1)}, "keys");
    const std::string rows = nodes_.Add("Unsqueeze", {queries, nodes_.Int64s({1})}, "rows");
    const std::string order = nodes_.Add("LessOrEqual", {keys, rows}, "order");
    for (const MissingOrder& m : missing) {
      const ValueId output = graph_.Find(m.output);
      if (output == kNoValue || graph_.producer(output) == kNoNode) return false;
      const NodeId n = graph_.producer(output);
      const ValueId operand = graph_.inputs(n)[m.operand];
      const int32_t type = forms_.ElementType(operand);
      const double masked = m.masked->kind() == Kind::kFloat
                                ? m.masked->float_value()
                                : static_cast<double>(m.masked->value());
      const std::string name = graph_.name(operand);
      std::string& replaced = patch->replace_inputs[{n, m.operand}];
      if (type == onnx::TensorProto::BOOL) {
        replaced = nodes_.Add("And", {order, name}, "visible");
      } else if (m.added) {
        const std::string mask = nodes_.Add(
            "Where", {order, nodes_.Scalar(0, type), nodes_.Scalar(masked, type)}, "mask");
        replaced = nodes_.Add("Add", {name, mask}, "masked");
      } else {
        replaced = nodes_.Add("Where", {order, name, nodes_.Scalar(masked, type)}, "mask");
      }
    }
    patch->new_nodes = nodes_.TakeNodes();
    patch->new_initializers = nodes_.TakeInitializers();
    return true;
  }

 private:
  const Graph& graph_;
  sym::Forms& forms_;
  NodeBuilder nodes_;
  const Growth& growth_;
  std::string past_;
};

class Unmerger {
 public:
  Unmerger(Normalised* result, Switch decision) : result_(result), decision_(std::move(decision)) {}

  absl::Status Run() {
    const onnx::ModelProto& model = result_->model;
    for (const auto& tensor : model.graph().initializer()) shared_.insert(tensor.name());
    KV_ASSIGN_OR_RETURN(later_, InlineBranches(model, decision_.Taken(true)));
    KV_ASSIGN_OR_RETURN(onnx::ModelProto first, InlineBranches(model, decision_.Taken(false)));
    KV_RETURN_IF_ERROR(Join(first));
    if (decision_.by_input() && pair_->OnlyLater().size() < pair_->OnlyFirst().size()) {
      past_if_ = false;
      std::swap(later_, first);
      KV_RETURN_IF_ERROR(Join(first));
    }
    growths_ = pair_->Growths(decision_.by_input() ? std::nullopt : std::optional(decision_.dim));
    if (growths_.empty()) return Refuse("neither branch appends to a past", {});
    if (!decision_.by_input() &&
        std::none_of(growths_.begin(), growths_.end(),
                     [&](const Growth& growth) { return growth.length->dim() == decision_.dim; })) {
      return Refuse(fmt::format("{} decides, which is no past's length", decision_.dim.name()), {});
    }
    if (DecidesMore()) {
      return Refuse(fmt::format("{} decides more than the branch", decision_.input), {});
    }
    return Prove();
  }

 private:
  absl::Status Join(const onnx::ModelProto& first) {
    KV_ASSIGN_OR_RETURN(onnx::ModelProto both, Combine(later_, first, shared_));
    KV_ASSIGN_OR_RETURN(pair_, DecoderPair::Create(std::move(both)));
    return absl::OkStatus();
  }

  bool DecidesMore() const {
    if (!decision_.by_input()) return false;
    const ValueId v = pair_->graph().Find(decision_.input);
    return InputsBehind(pair_->graph(), pair_->later()).contains(v) ||
           InputsBehind(pair_->graph(), pair_->first()).contains(v);
  }

  absl::Status Prove() {
    crossings_ = pair_->Crossings(growths_);
    if (!crossings_.empty() && !decision_.by_input()) {
      return Refuse("keys of another sequence are computed where the past is empty", {});
    }
    const auto extents = pair_->EmptyPasts(growths_, crossings_);
    KV_ASSIGN_OR_RETURN(const std::unique_ptr<DecoderPair> empty,
                        DecoderPair::Create(pair_->WithExtents(extents)));
    if (const auto odd = Differing(*empty, nullptr)) {
      OrderSearch search;
      const Expr added = pair_->forms().pool().Substitute(growths_.front().added, extents, {});
      if (added->kind() != Kind::kDim) return RefuseAt(*empty, *odd);
      search.added = empty->forms().pool().Dim(added->dim());
      if (Differing(*empty, &search)) return RefuseAt(*empty, *odd);
      return Finish(&search, added->dim());
    }
    return Finish(nullptr, {});
  }

  struct Odd {
    NodeId node;
    ValueId output;
  };

  // Returns the first output that differs between the calls, with the first node of the later call
  // that does; nullopt if all outputs are equal.
  std::optional<Odd> Differing(DecoderPair& pair, OrderSearch* search) {
    ValueNumbering equal(pair.forms());
    equal.Number(pair.first());
    absl::flat_hash_set<std::string> crossing;
    for (const CrossAttentionCache& c : crossings_) {
      const ValueId past = pair.graph().Find(c.past), first = pair.graph().Find(c.first);
      crossing.insert(c.present);
      const sym::Form x = pair.forms().Of(past), y = pair.forms().Of(first);
      const bool fits = x.known_rank && y.known_rank && x.shape == y.shape &&
                        pair.forms().ElementType(past) == pair.forms().ElementType(first);
      if (!fits) return Odd{kNoNode, pair.graph().Find(c.present)};
      equal.Alias(past, first);
    }
    equal.Number(pair.later(), search == nullptr ? nullptr : LacksOrder, search);
    for (size_t k = 0; k < pair.later().size(); ++k) {
      const ValueId later = pair.later()[k];
      if (crossing.contains(pair.graph().name(later))) continue;
      if (equal.Same(later, pair.first()[k])) continue;
      return Odd{equal.FirstWithoutPartner({&later, 1}), later};
    }
    return std::nullopt;
  }

  absl::Status RefuseAt(DecoderPair& pair, const Odd& odd) {
    const Graph& graph = pair.graph();
    const sym::Form form = pair.forms().Of(odd.output);
    const bool empty = form.known_rank && std::any_of(form.shape.begin(), form.shape.end(),
                                                      [](Expr dim) { return dim->is_integer(0); });
    const std::string output = graph.name(odd.output);
    if (empty) {
      return Refuse(
          fmt::format("the branch with a past gives nothing for {}, the other one does", output),
          {});
    }
    const std::string node = odd.node == kNoNode ? output : graph.NodeName(odd.node);
    return Refuse(
        fmt::format("where the past is empty, the branches differ in {}, first at {}", output,
                    node),
        odd.node == kNoNode ? std::vector<std::string>{} : std::vector<std::string>{node});
  }

  absl::Status Refuse(std::string text, std::vector<std::string> nodes) {
    nodes.insert(nodes.begin(), decision_.node);
    result_->refusals.push_back({"KV225", std::move(text), std::move(nodes), {}});
    return absl::OkStatus();
  }

  absl::Status Finish(const OrderSearch* search, const sym::DimSymbol& new_tokens) {
    const std::string past = pair_->graph().name(growths_.front().past);
    const bool decides = !crossings_.empty();
    if (decides) KV_RETURN_IF_ERROR(KeepCross());
    KV_ASSIGN_OR_RETURN(const Graph graph,
                        Graph::Build(std::make_shared<const onnx::ModelProto>(std::move(later_))));
    sym::Forms forms(graph);
    Patch patch;
    patch.drop_value_info = false;
    if (search != nullptr) {
      const auto origin = forms.OriginOf(new_tokens);
      if (!origin) return Refuse("no input tells the number of new tokens", {});
      OrderAdder adder(graph, forms, growths_.front(), past);
      if (!adder.Add(search->found, graph.name(origin->input), origin->axis, &patch)) {
        return Refuse("the causal order cannot be added", {});
      }
    }
    const bool drops = decision_.by_input() && !decides;
    if (drops) patch.remove_inputs.insert(decision_.input);
    KV_ASSIGN_OR_RETURN(result_->model, Apply(graph, patch));
    if (drops) {
      result_->dropped.push_back(
          {decision_.input, past_if_ ? DroppedValue::kWithPast : DroppedValue::kWithoutPast});
    }
    if (search != nullptr) {
      result_->preconditions.push_back(
          {"KV320",
           "steps with a past have one new token in the source: its branch for them sees no "
           "causal order in new tokens",
           PreconditionStatus::kAssumed});
      result_->origins.push_back({"/kvlift/order/", decision_.node});
      result_->limits.new_tokens_with_past = 1;
    }
    return absl::OkStatus();
  }

  absl::Status KeepCross() {
    KV_ASSIGN_OR_RETURN(const Graph graph,
                        Graph::Build(std::make_shared<const onnx::ModelProto>(later_)));
    sym::Forms forms(graph);
    const ValueId condition = graph.Find(decision_.condition);
    const auto truth = decision_.Taken(past_if_)(forms, condition);
    if (!truth) return absl::InternalError("the condition of an If is gone");
    KV_ASSIGN_OR_RETURN(later_, KeepCrossAttentionCaches(later_, pair_->forms(), kFirstCall,
                                                         decision_.condition, *truth, crossings_));
    result_->origins.push_back({"/kvlift/cross/", decision_.node});
    return absl::OkStatus();
  }

  Normalised* result_;
  Switch decision_;
  bool past_if_ = true;  // the branch with a past is the one for a true input or a nonempty past
  absl::flat_hash_set<std::string> shared_;
  onnx::ModelProto later_;
  std::unique_ptr<DecoderPair> pair_;
  std::vector<Growth> growths_;
  std::vector<CrossAttentionCache> crossings_;
};

bool HasIf(const onnx::ModelProto& model) {
  const auto& nodes = model.graph().node();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const onnx::NodeProto& node) { return node.op_type() == "If"; });
}

}  // namespace

absl::Status Unmerge(Normalised* result) {
  if (!HasIf(result->model)) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(result->model, InlineBranches(result->model, ProvableCondition));
  if (!HasIf(result->model)) return absl::OkStatus();
  KV_ASSIGN_OR_RETURN(const auto decision, FindSwitch(result->model));
  if (!decision) return absl::OkStatus();
  return Unmerger(result, *decision).Run();
}

}  // namespace kvlift
