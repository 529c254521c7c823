#include "proof/dependence/token_reads.h"

#include <algorithm>

#include "fmt/format.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;
using sym::Kind;

}  // namespace

TokenReads::TokenReads(const GraphPair& pair, const Correspondence& twins, Barred barred)
    : barred_(barred),
      graph_(pair.graph()),
      forms_(pair.forms()),
      pool_(forms_.pool()),
      twins_(twins),
      new_(twins.new_tokens()),
      axes_(pool_, twins.past(), new_, twins.Normal(twins.total(), Facts{})) {}

void TokenReads::FindBehindAttention(const ReadAttentions& attentions) {
  const auto behind = [&](ValueId v) { return v != kNoValue && behind_attention_.contains(v); };
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    const auto inputs = graph_.inputs(n), captures = graph_.captures(n);
    const bool reads = std::any_of(inputs.begin(), inputs.end(), behind) ||
                       std::any_of(captures.begin(), captures.end(), behind);
    for (ValueId v : graph_.outputs(n)) {
      if (v != kNoValue && (reads || attentions.contains(v))) behind_attention_.insert(v);
    }
  }
}

void TokenReads::ReadInParts(ValueId v, bool in_parts) {
  if (in_parts) {
    in_parts_.insert(v);
  } else {
    in_parts_.erase(v);
  }
}

Along TokenReads::AlongOf(Expr extent, bool in_parts) const {
  return axes_.AlongOf(twins_.Normal(extent, Facts{}), in_parts);
}

bool TokenReads::Matters(ValueId v) const {
  return barred_ == Barred::kLater || behind_attention_.contains(v);
}

std::vector<Expr> TokenReads::Joined(std::vector<Expr> shape, const std::vector<Expr>& taken) {
  shape.insert(shape.end(), taken.begin(), taken.end());
  return shape;
}

Facts TokenReads::Normal(const std::vector<Expr>& shape) const {
  Facts facts;
  for (Expr extent : shape) facts.extents.push_back(twins_.Normal(extent, Facts{}));
  return facts;
}

PaddingReach TokenReads::Of(Expr e, const std::vector<Expr>& shape, const std::vector<Expr>& taken,
                            bool in_parts) {
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

PaddingReach TokenReads::OfRead(Expr e, const Place& place, Expr known) {
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

PaddingReach TokenReads::OfLoad(Expr load, const Place& place, Expr known) {
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
      return {fmt::format("{} may be {} token", Text(load), later ? "a later" : "another"), false};
    }
  }
  return {};
}

bool TokenReads::IsOwnRow(Expr at, const Place& place, Expr known) const {
  return std::any_of(place.tokens.begin(), place.tokens.end(), [&](Expr own) {
    const Expr start = pool_.Sub(at, own);
    const Expr sequence = pool_.FloorDiv(start, new_, place.facts);
    return pool_.Mul(sequence, new_) == start && !axes_.CountsTokens(sequence) &&
           sym::LoadsOf(sequence).empty() &&
           Holds(pool_.Le(pool_.Integer(0), own, place.facts), place, known);
  });
}

bool TokenReads::Holds(Expr condition, const Place& place, Expr known) const {
  return condition->is_integer(1) ||
         pool_.Assume(condition, known, true, place.facts)->is_integer(1);
}

bool TokenReads::IsReal(Expr token, const Place& place, Expr known) const {
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

std::string TokenReads::Text(Expr e) const { return sym::ToString(e, &graph_); }

}  // namespace kvlift
