#include "rewrite/lower/joined_sequences.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "rewrite/lower/normalise.h"
#include "sym/emit/emit.h"

namespace kvlift {
namespace {

using sym::Expr;
using CacheSlots = KeyValueCacheSlots;

constexpr int64_t kPieces = 0;  // the cache_mode of rows in one piece

}  // namespace

std::string OneSequence::ShapeMisfit(NodeId n) {
  const CacheSlots slots = CacheSlots::Of(graph_.node(n));
  const auto is = [&](int operand, int64_t size) {
    const sym::Form& form = forms_.Of(graph_.inputs(n)[static_cast<size_t>(operand)]);
    return form.known_rank && form.shape.size() == 1 && form.shape[0]->is_integer(size);
  };
  if (is(slots.seqstarts, 2) && is(slots.kvstarts, 2) && is(slots.cachestarts, 1) &&
      is(slots.start, 1)) {
    return {};
  }
  return "needs one sequence: seqstarts and kvstarts of shape [2], cachestarts and start_pos of "
         "[1]";
}

std::string OneSequence::Misfit(NodeId n) {
  const CacheSlots slots = CacheSlots::Of(graph_.node(n));
  const auto operands = graph_.inputs(n);
  for (const int k : {slots.seqstarts, slots.kvstarts, slots.cachestarts, slots.start}) {
    if (operands[static_cast<size_t>(k)] == kNoValue) return "needs all operands up to the cache";
  }
  if (IntAttribute(graph_.node(n), "cache_mode", 0) != kPieces) {
    return "needs the rows of a sequence in one piece (cache_mode 0), found pages";
  }
  if (std::string text = ShapeMisfit(n); !text.empty()) return text;
  const sym::Form rows = forms_.Of(operands[CacheSlots::kKey]);
  if (!rows.known_rank || rows.shape.size() != 3) return "needs rows [S, Nk, D]";
  start_ = operands[static_cast<size_t>(slots.start)];
  new_rows_ = rows.shape[0];
  const auto start = forms_.Elements(start_);
  if (!start) return "needs a start_pos that the host feeds or that is computed from what it feeds";
  sym::Pool& pool = forms_.pool();
  const Expr zero = pool.Integer(0);
  for (const auto& [operand, wanted, required] :
       {std::tuple(slots.seqstarts, Elements{zero, new_rows_}, DroppedValue::kStartsOfNewRows),
        std::tuple(slots.kvstarts, Elements{zero, pool.Add(start->front(), new_rows_)},
                   DroppedValue::kStartsOfAllRows),
        std::tuple(slots.cachestarts, Elements{zero}, DroppedValue::kFirstSlot)}) {
    if (std::string text = Judge(n, operand, wanted, required); !text.empty()) return text;
  }
  nodes_.push_back(n);
  for (const NodeId node : nodes_) {
    if (ComesFromGiven(graph_.inputs(node)[static_cast<size_t>(slots.start)])) {
      return "needs a start_pos that does not come from other starts";
    }
  }
  for (const ValueId source : sym::SourcesOf(new_rows_)) {
    if (ComesFromGiven(source)) return "needs rows whose number does not come from their starts";
  }
  return {};
}

// Returns why the operand does not fit; empty if its elements are as wanted, or if it is an input,
// for which the host must feed them.
std::string OneSequence::Judge(NodeId n, int operand, const Elements& wanted,
                               DroppedValue required) {
  const ValueId v = graph_.inputs(n)[static_cast<size_t>(operand)];
  const auto found = forms_.Elements(v);
  if (found && *found == wanted) return {};
  if (graph_.is_graph_input(v) && graph_.constant(v) == nullptr) {
    const auto [at, added] = given_.emplace(v, required);
    if (at->second == required) return {};
  }
  std::string text = "what is not seen";
  if (found) {
    text.clear();
    for (const Expr e : *found) {
      text += fmt::format("{}{}", text.empty() ? "[" : ", ", sym::ToString(e, &graph_));
    }
    text += "]";
  }
  return fmt::format("needs {} to be [{}] for S new rows behind P old ones, found {}",
                     graph_.name(v), WordOf(required), text);
}

bool OneSequence::ComesFromGiven(ValueId v) const {
  std::vector<ValueId> open = {v};
  absl::flat_hash_set<ValueId> seen = {v};
  while (!open.empty()) {
    const ValueId next = open.back();
    open.pop_back();
    if (given_.count(next) > 0) return true;
    const NodeId n = graph_.producer(next);
    if (n == kNoNode) continue;
    for (const auto& values : {graph_.inputs(n), graph_.captures(n)}) {
      for (const ValueId input : values) {
        if (input != kNoValue && seen.insert(input).second) open.push_back(input);
      }
    }
  }
  return false;
}

// Drops the inputs for the lengths of the longest sequences, if only these nodes read them.
void OneSequence::DropUnread(NodeId n) {
  const CacheSlots slots = CacheSlots::Of(graph_.node(n));
  for (const auto& [operand, required] : {std::pair(slots.start + 1, DroppedValue::kMostNewRows),
                                          std::pair(slots.start + 2, DroppedValue::kMostRows)}) {
    const ValueId v = graph_.inputs(n)[static_cast<size_t>(operand)];
    if (v == kNoValue || !graph_.is_graph_input(v) || graph_.constant(v) != nullptr) continue;
    const auto uses = graph_.uses(v);
    const bool unread = std::all_of(uses.begin(), uses.end(), [&, at = operand](const Use& use) {
      return use.kind == Use::Kind::kNodeInput && use.index == at &&
             std::find(nodes_.begin(), nodes_.end(), use.node) != nodes_.end();
    });
    if (unread) given_.emplace(v, required);
  }
}

absl::Status OneSequence::Define(NodeBuilder& builder, Normalised* result) {
  for (const NodeId n : nodes_) DropUnread(n);
  builder.set_scope("one_sequence");
  sym::Emitter emitter(forms_, builder);
  for (const auto& [input, required] : given_) {
    const std::string& name = graph_.name(input);
    result->dropped.push_back({name, required});
    if (required == DroppedValue::kMostNewRows || required == DroppedValue::kMostRows) continue;
    result->preconditions.push_back(
        {"KV308",
         fmt::format("{} is [{}]: the rows of one sequence, from the first slot on", name,
                     WordOf(required)),
         PreconditionStatus::kAssumed});
    const std::string zero = builder.Int64s({0});
    if (required == DroppedValue::kFirstSlot) {
      builder.AddNamed("Identity", {zero}, "cachestarts", name);
      continue;
    }
    KV_ASSIGN_OR_RETURN(std::string end, emitter.Dim(new_rows_));
    if (required == DroppedValue::kStartsOfAllRows) {
      end = builder.Add("Add", {graph_.name(start_), end}, "all_rows");
    }
    builder.AddNamed("Concat", {zero, end}, "starts", name, {MakeAttribute("axis", int64_t{0})});
  }
  return absl::OkStatus();
}

}  // namespace kvlift
