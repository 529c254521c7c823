#include "rewrite/recognise/find_caches.h"

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/overloaded.h"
#include "fmt/format.h"
#include "rewrite/branches/if_branches.h"
#include "rewrite/recognise/append.h"
#include "rewrite/recognise/near_misses.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

using sym::Kind;

// Refuses steps of a fixed number of rows above 1 unless the options take them: shorter steps, and
// prompts of different lengths, have to write padding tokens.
std::optional<Finding> FixedChunk(const Analysis& a, const CacheUpdate& update,
                                  const ConvertOptions& options) {
  if (options.step_length == StepLength::kFixed) return std::nullopt;
  if (update.new_length->kind() != Kind::kInteger || update.new_length->value() <= 1) {
    return std::nullopt;
  }
  return MakeFinding("KV208",
                     fmt::format("needs steps of any number of tokens, or of one, found steps that "
                                 "write {} rows into {} (--step-length fixed takes them)",
                                 update.new_length->value(), a.graph->name(update.pair.past)),
                     *a.graph, {update.node}, {update.pair.past, update.pair.present});
}

// Returns why the rows of a match cannot be written as the options ask; nullopt if they can.
std::optional<Finding> WhyNotWritten(const Analysis& a, const CacheUpdate& update,
                                     const ConvertOptions& options) {
  using Reason = std::optional<Finding>;
  const auto needs_circular = [&](const char* code, const std::string& text) -> Reason {
    if (options.mode == WriteMode::kCircular) return FixedChunk(a, update, options);
    return MakeFinding(code, text, *a.graph, {update.node},
                       {update.pair.past, update.pair.present});
  };
  return std::visit(
      Overloaded{[&](const auto&) { return FixedChunk(a, update, options); },
                 [&](const WriteAround& write) {
                   return needs_circular(
                       "KV227", fmt::format("needs --mode circular, found slots (s + {}) mod the "
                                            "capacity",
                                            sym::ToString(write.start, a.graph.get())));
                 },
                 [&](const Fifo&) {
                   return needs_circular(
                       "KV205",
                       "needs rows that stay where they are, or --mode circular, found "
                       "rows that move to the front");
                 }},
      update.how);
}

// Returns true if --only and --skip let the cache be converted. Patterns match the name of its past
// or of its present, or of the source's tensors that they are parts of.
bool Wanted(const Analysis& a, const CachePair& pair, const ConvertOptions& options) {
  std::vector<std::string> names = {a.graph->name(pair.past), a.graph->name(pair.present)};
  if (const UnpackedCache* part = a.normalised.unpacked.Find(names[0]); part != nullptr) {
    names.push_back(part->source.input);
    names.push_back(part->source.output);
  }
  const auto meets = [&](const std::vector<std::string>& patterns) {
    return absl::c_any_of(patterns, [&](const std::string& pattern) {
      return absl::c_any_of(names, [&](const std::string& name) {
        return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
      });
    });
  };
  return (options.only.empty() || meets(options.only)) && !meets(options.skip);
}

// Returns true if the TensorScatter that writes the candidate is not the source's, since the
// lowering put it in place of another operator.
bool IsWrittenByLowering(const Analysis& a, const Candidate& candidate) {
  const auto& nodes = candidate.if_unmatched.nodes;
  return candidate.converted && !nodes.empty() && a.normalised.IsReplacement(nodes[0]);
}

// Records that the source holds the newest rows of the cache only, in a buffer.
void NameSlidingBuffer(const Analysis& a, CacheUpdate* update) {
  auto* all = std::get_if<AppendAll>(&update->how);
  if (all == nullptr) return;
  for (const SlidingRows& rows : a.normalised.sliding) {
    if (rows.input == a.graph->name(update->pair.past)) all->sliding = rows.buffer;
  }
}

void MatchCaches(RuleTable rules, const ConvertOptions& options, WrittenCaches written,
                 Analysis& a) {
  for (AnalysedCache& cache : a.caches) {
    const CachePair& pair = cache.candidate.pair;
    if (cache.candidate.converted && written == WrittenCaches::kStay) {
      cache.reason = StayReason{StayCause::kConverted, cache.candidate.if_unmatched};
      continue;
    }
    cache.reason = StayReason::Refused(cache.candidate.converted
                                           ? DescribeCandidate(*a.forms, pair).if_unmatched
                                           : cache.candidate.if_unmatched);
    if (!Wanted(a, pair, options)) {
      cache.reason =
          StayReason{StayCause::kLeftByOption,
                     MakeFinding("KV230", "left alone, as --only or --skip asks", *a.graph,
                                 {a.graph->producer(pair.present)}, {pair.past, pair.present})};
      continue;
    }
    for (const Rule* rule : rules) {
      if (rule->cache == nullptr) continue;
      auto result = rule->cache(*a.forms, pair);
      if (result.match) {
        if (auto reason = WhyNotWritten(a, *result.match, options)) {
          cache.reason = StayReason::Refused(*std::move(reason));
          break;
        }
        NameSlidingBuffer(a, &*result.match);
        cache.update_index = static_cast<int>(a.updates.size());
        a.updates.push_back(*result.match);
        cache.update = std::move(result.match);
        cache.reason.reset();
        break;
      }
      if (result.refusal) cache.reason = StayReason::Refused(*std::move(result.refusal));
    }
    if (cache.update_index >= 0 || cache.candidate.converted) continue;
    if (const ValueId past = PastOfNewRows(*a.forms, pair.present); past != kNoValue) {
      cache.reason = StayReason::Refused(NewRowsOnly(*a.graph, pair.present, past));
    }
  }
}

// Returns true for caches of cross-attention: one call computes them, and the host feeds them to
// later calls.
bool IsHandedOver(const Graph& graph, ValueId present) {
  const NodeId n = graph.producer(present);
  return n != kNoNode && graph.Is(n, "If") &&
         GivesNothing(graph.node(n), graph.output_index(present));
}

bool HasQuantizer(const Graph& graph) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (graph.Is(n, "QuantizeLinear")) return true;
  }
  return false;
}

// At most this many candidates are read as buffers for steps that fit into them.
constexpr int kMostFitted = 4;

// Returns forms that bound a number of tokens, under which a candidate is a write into a buffer
// that holds so many, and was none before. Returns null if no such forms are found. `fresh` returns
// new forms of the graph, in which no number of tokens is bounded.
std::unique_ptr<sym::Forms> WithTokensThatFit(
    sym::Forms& forms, absl::Span<const Candidate> candidates,
    absl::FunctionRef<std::unique_ptr<sym::Forms>()> fresh) {
  int tried = 0;
  for (const Candidate& c : candidates) {
    const auto sizes = TokensThatMayFit(forms, c.pair);
    if (!sizes.empty() && ++tried > kMostFitted) return nullptr;
    for (const TokensThatFit& fit : sizes) {
      auto bounded = fresh();
      const sym::Expr slots = bounded->pool().Integer(fit.slots);
      bounded->pool().Bound(fit.tokens, slots);
      const auto write = ReadWrite(*bounded, c.pair);
      const bool fits = write && write->length == bounded->pool().Dim(fit.tokens) &&
                        bounded->Of(c.pair.past).shape[write->axis] == slots;
      if (fits) return bounded;
    }
  }
  return nullptr;
}

bool IsRecognised(RuleTable rules, sym::Forms& forms, const CachePair& pair) {
  return absl::c_any_of(rules, [&](const Rule* rule) {
    return rule->cache != nullptr && rule->cache(forms, pair).match;
  });
}

// Returns the size of the past on the axis on which the present has more rows, if it has a name;
// else null.
sym::Expr PastRowsOf(sym::Forms& forms, const Candidate& c) {
  const sym::Form past = forms.Of(c.pair.past), present = forms.Of(c.pair.present);
  const auto axis = static_cast<size_t>(c.axis);
  if (!c.growing || !past.known_rank || !present.known_rank) return nullptr;
  if (axis >= past.shape.size() || axis >= present.shape.size()) return nullptr;
  return past.shape[axis]->kind() == Kind::kDim ? past.shape[axis] : nullptr;
}

// Returns forms under which pasts hold at most W rows, where their presents do and the host feeds
// these back, and under which a candidate is recognised that was not before. Returns null if no
// such forms are found. `fresh` returns new forms of the graph, in which no past is bounded.
std::unique_ptr<sym::Forms> WithPastsOfWindows(
    RuleTable rules, sym::Forms& forms, absl::Span<const Candidate> candidates,
    absl::FunctionRef<std::unique_ptr<sym::Forms>()> fresh) {
  // W by the size of a past; 0 if a tensor without that window has the size as well.
  absl::flat_hash_map<sym::DimSymbol, int64_t> windows;
  for (const Candidate& c : candidates) {
    const sym::Expr past = PastRowsOf(forms, c);
    if (past == nullptr) continue;
    const sym::Form present = forms.Of(c.pair.present);
    const auto window = sym::AtMostIn(forms.pool(), present.shape[static_cast<size_t>(c.axis)]);
    const int64_t rows = window ? window->most : 0;
    const auto [it, first] = windows.try_emplace(past->dim(), rows);
    if (!first && it->second != rows) it->second = 0;
  }
  std::vector<CachePair> missed;
  std::unique_ptr<sym::Forms> bounded;
  for (const Candidate& c : candidates) {
    const sym::Expr past = PastRowsOf(forms, c);
    const int64_t rows = past == nullptr ? 0 : windows[past->dim()];
    if (rows == 0 || IsRecognised(rules, forms, c.pair)) continue;
    if (bounded == nullptr) bounded = fresh();
    bounded->pool().Bound(past->dim(), bounded->pool().Integer(rows));
    missed.push_back(c.pair);
  }
  const bool more = absl::c_any_of(
      missed, [&](const CachePair& pair) { return IsRecognised(rules, *bounded, pair); });
  return more ? std::move(bounded) : nullptr;
}

// Finds the candidates. Caches that hold fewer numbers than their type has get them assumed
// (sym::NumbersOfCaches). Steps are taken to have no more tokens than a buffer has slots where the
// graph writes into it only then, which is a precondition of every conversion of a fixed buffer
// (KV301), and pasts to have no more rows than the presents of earlier steps.
Candidates CandidatesFor(RuleTable rules, Analysis& a) {
  const auto assume = [&](const auto& numbers) {
    auto forms = std::make_unique<sym::Forms>(*a.graph);
    for (const auto& [past, held] : numbers) forms->AssumeNumbersOf(past, held);
    return forms;
  };
  absl::flat_hash_map<ValueId, NumberSet> narrow;
  const auto cast = sym::CastInputs(*a.graph);
  if (!cast.empty() || HasQuantizer(*a.graph)) {
    const Candidates candidates = FindCandidates(*assume(cast));
    std::vector<std::pair<ValueId, ValueId>> pairs;
    for (const Candidate& c : candidates.pairs) pairs.emplace_back(c.pair.past, c.pair.present);
    narrow = sym::NumbersOfCaches(*a.graph, pairs);
    if (!narrow.empty()) a.forms = assume(narrow);
  }
  Candidates candidates = FindCandidates(*a.forms);
  const auto fresh = [&] { return assume(narrow); };
  auto bounded = WithTokensThatFit(*a.forms, candidates.pairs, fresh);
  if (bounded == nullptr) bounded = WithPastsOfWindows(rules, *a.forms, candidates.pairs, fresh);
  if (bounded == nullptr) return candidates;
  a.forms = std::move(bounded);
  return FindCandidates(*a.forms);
}

}  // namespace

void FindCaches(RuleTable rules, const ConvertOptions& options, WrittenCaches written,
                Analysis& a) {
  Candidates candidates = CandidatesFor(rules, a);
  a.near_misses = std::move(candidates.near_misses);
  a.states = std::move(candidates.states);
  for (Candidate& candidate : candidates.pairs) {
    if (IsHandedOver(*a.graph, candidate.pair.present)) continue;
    if (IsWrittenByLowering(a, candidate)) {
      candidate = DescribeCandidate(*a.forms, candidate.pair);
    }
    a.caches.emplace_back();
    a.caches.back().candidate = std::move(candidate);
    a.normalised.GiveReason(&a.caches.back().candidate.if_unmatched);
  }
  MatchCaches(rules, options, written, a);
}

}  // namespace kvlift
