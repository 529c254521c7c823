#include "proof/facts/cache_facts.h"

#include "fmt/format.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

std::vector<Expr> CacheFacts::Indices(size_t rank) {
  std::vector<Expr> at;
  for (size_t k = 0; k < rank; ++k) at.push_back(pool_.Index(static_cast<int>(k)));
  return at;
}

// The element of the source at the indices `at` in the converted cache's layout; null if it is not
// known.
Expr CacheFacts::SourceElement(const ManifestCache& cache, ValueId value, absl::Span<const Expr> at,
                               const Facts& facts) {
  const std::vector<Expr> own = twins_.SourcePlace(pair_.After(cache.input), at);
  const sym::Form form = forms_.Of(value);
  if (!form.known_rank || form.shape.size() != own.size()) return nullptr;
  return twins_.Normal(forms_.At(value, own, facts), facts);
}

// Says which extent of the present differs from the past's or from the source's. The rows of a
// cache that grows are compared with the source's alone, and those of a buffer with its past's
// alone. Empty if no extent differs.
std::string CacheFacts::OtherExtents(const ManifestCache& cache) {
  const ValueId present = pair_.After(cache.output), past = pair_.After(cache.input);
  const ValueId theirs = pair_.Before(cache.source.output);
  const auto type = [&](ValueId v) { return forms_.ElementType(v); };
  if (present == kNoValue || past == kNoValue || theirs == kNoValue) return "it is not there";
  if (type(present) != type(past)) return "the present is of another type than the past";
  const sym::Form mine = forms_.Of(present), old = forms_.Of(past), other = forms_.Of(theirs);
  if (!mine.known_rank || !old.known_rank || !other.known_rank ||
      mine.shape.size() != old.shape.size()) {
    return "the present's form is not known";
  }
  const auto is_same = [&](Expr x, Expr y) { return equality_.Equal(x, y, pool_.True(), Facts{}); };
  std::vector<Expr> extents;
  for (size_t k = 0; k < mine.shape.size(); ++k) {
    extents.push_back(twins_.Extent(mine.shape[k], pool_.Index(0)));
    if (cache.grows && k == static_cast<size_t>(cache.axis)) continue;
    if (is_same(extents[k], twins_.Extent(old.shape[k], pool_.Index(0)))) continue;
    return fmt::format("the present has {} on axis {} and the past {}", facts_.Text(mine.shape[k]),
                       k, facts_.Text(old.shape[k]));
  }
  if (cache.layout.find('(') != std::string::npos) return "";
  // Axes of the source that are fixed by `select` have no counterpart.
  const std::vector<Expr> places = twins_.SourcePlace(past, Indices(mine.shape.size()));
  const auto rows = static_cast<size_t>(cache.source.axis);
  if (places.size() != other.shape.size()) return "the present is of another rank";
  for (size_t k = 0; k < places.size(); ++k) {
    if ((k == rows && BecomesBuffer(cache)) || places[k]->kind() != sym::Kind::kIndex) continue;
    const auto own = static_cast<size_t>(places[k]->index());
    if (is_same(extents[own], twins_.Normal(other.shape[k], Facts{}))) continue;
    return fmt::format("the present has {} on axis {} and the source's {}",
                       facts_.Text(mine.shape[own]), own, facts_.Text(other.shape[k]));
  }
  return "";
}

// Returns true if the source has the node that makes the present, with the same operands, as for an
// operator whose results are not read element by element.
bool CacheFacts::IsOfSameNode(const ManifestCache& cache) const {
  if (cache.layout != cache.source.layout || !cache.source.select.empty()) return false;
  const ValueId mine = pair_.After(cache.output), theirs = pair_.Before(cache.source.output);
  return mine != kNoValue && twins_.TwinSameness(mine, theirs) == Sameness::kWhole;
}

void CacheFacts::Prove(const ManifestCache& cache) {
  const ValueId present = pair_.After(cache.output);
  const sym::Form form = forms_.Of(present);
  if (cache.grows && IsOfSameNode(cache)) {
    return facts_.Add(cache.id, "every row holds what the source's present holds", "");
  }
  if (std::string why_not = OtherExtents(cache); !why_not.empty()) {
    return facts_.Add(cache.id,
                      cache.grows
                          ? "has the source's sequences, heads, sizes and rows"
                          : "has the source's sequences, heads and sizes, and the past's slots",
                      why_not);
  }
  if (cache.ring) return ProveRing(cache);
  const bool fills = BecomesBuffer(cache);
  const std::string same =
      cache.source.sliding
          ? "rows [0, P + S) hold all rows, whose newest the source's present holds"
      : fills ? "rows [0, P + S) hold what the source's present holds"
              : "every row holds what the source's present holds";
  const std::string rest = "rows from P + S on are the past's own";
  const bool window = cache.source.kind == UpdateKind::kWindow;
  if (window && steps_.window != SourceCase::Window::kNone && twins_.total() != nullptr) {
    return ProveWindow(cache);
  }
  const bool shifts = cache.source.kind == UpdateKind::kShift;
  if (shifts && twins_.MovedOf(pair_.After(cache.input)) != nullptr) return ProveShift(cache);
  const bool moves = (window || shifts) && !cache.grows;
  if (moves || (cache.source.growing && twins_.total() == nullptr)) {
    const char* why_not =
        moves ? "rows of the source move or leave" : "P and S are not seen in the source's caches";
    facts_.Add(cache.id, same, why_not);
    if (fills) facts_.Add(cache.id, rest, why_not);
    return;
  }
  if (!form.known_rank || form.shape.size() != cache.layout.size()) {
    return facts_.Add(cache.id, same, "the present's form is not known");
  }
  if (!cache.source.growing && cache.layout.find('L') != std::string::npos) {
    return ProveLayers(cache, same);
  }
  const auto axis = static_cast<size_t>(cache.axis);
  std::vector<Expr> at = Indices(form.shape.size());
  const Expr sequence = at[cache.layout.find('B')];
  Facts facts{form.shape};
  if (fills) facts.extents[axis] = twins_.total();
  const Expr mine = twins_.Translate(forms_.At(present, at, facts), sequence, facts);
  const Expr theirs = SourceElement(cache, pair_.Before(cache.source.output), at, facts);
  facts_.AddEqual(cache.id, same, mine, theirs, pool_.True(), facts);
  if (!fills) return;
  // From here on index `axis` counts from P + S.
  facts.extents[axis] = nullptr;
  at[axis] = pool_.Add(at[axis], twins_.total());
  const Expr behind = twins_.Translate(Behind(present, at, sequence, facts), sequence, facts);
  facts_.AddEqual(cache.id, rest, behind, KeptElement(cache, theirs, at, facts), pool_.True(),
                  facts);
}

// A packed tensor of all layers is proved part by part, because each part is written by a node of
// its own.
void CacheFacts::ProveLayers(const ManifestCache& cache, const std::string& same) {
  const ValueId present = pair_.After(cache.output);
  const sym::Form form = forms_.Of(present);
  std::vector<size_t> lanes;
  int64_t parts = 1;
  for (const char letter : {'L', 'K'}) {
    const size_t axis = cache.layout.find(letter);
    if (axis == std::string::npos || form.shape[axis]->kind() != sym::Kind::kInteger) continue;
    lanes.push_back(axis);
    parts *= form.shape[axis]->value();
  }
  const Facts facts{form.shape};
  facts_.ForEach(parts, [&](int64_t part) {
    std::vector<Expr> at = Indices(form.shape.size());
    const Expr sequence = at[cache.layout.find('B')];
    for (const size_t axis : lanes) {
      at[axis] = pool_.Integer(part % form.shape[axis]->value());
      part /= form.shape[axis]->value();
    }
    const Expr mine = twins_.Translate(forms_.At(present, at, facts), sequence, facts);
    const Expr theirs = SourceElement(cache, pair_.Before(cache.source.output), at, facts);
    return facts_.AddEqual(cache.id, same, mine, theirs, pool_.True(), facts);
  });
}

// Proves that each ring slot holds the token of the source's present. If the source keeps a window,
// its present may begin at a later token than its past.
void CacheFacts::ProveRing(const ManifestCache& cache) {
  const char* what = "slot t mod C holds token t as the source's present does";
  const ValueId present = pair_.After(cache.output), theirs = pair_.Before(cache.source.output);
  const sym::Form form = forms_.Of(present), other = forms_.Of(theirs);
  const auto* regions = twins_.MovedOf(pair_.After(cache.input));
  const auto source_axis = static_cast<size_t>(cache.source.axis);
  if (regions == nullptr || !form.known_rank || form.shape.size() != cache.layout.size() ||
      !other.known_rank || source_axis >= other.shape.size() ||
      form.shape[static_cast<size_t>(cache.axis)] != regions->front().slots()) {
    return facts_.Add(cache.id, what, "what its slots hold is not seen");
  }
  const auto axis = static_cast<size_t>(cache.axis);
  std::vector<Expr> at = Indices(form.shape.size());
  const Expr sequence = at[cache.layout.find('B')];
  const Facts facts{form.shape};
  const Expr mine = twins_.Translate(forms_.At(present, at, Facts{}), sequence, facts);
  // Rows are aligned at their ends, because the last row of both models is the same token.
  const Expr rows = twins_.Normal(other.shape[source_axis], Facts{});
  at[axis] = pool_.Add(at[axis], pool_.Sub(rows, regions->back().end()));
  const Expr element = SourceElement(cache, theirs, at, Facts{});
  for (const MovedRows& region : *regions) {
    facts_.AddEqual(cache.id, fmt::format("{}, of {}", what, region.text()),
                    region.Mine(mine, facts, axis), region.Theirs(element, facts, axis),
                    pool_.True(), region.Extents(facts, axis));
  }
}

// The source keeps only the last of the rows that the converted model holds.
void CacheFacts::ProveWindow(const ManifestCache& cache) {
  const ValueId present = pair_.After(cache.output);
  const ValueId theirs = pair_.Before(cache.source.output);
  const sym::Form form = forms_.Of(present);
  const auto axis = static_cast<size_t>(cache.axis), batch = cache.layout.find('B');
  std::vector<Expr> at = Indices(form.shape.size());
  const std::vector<Expr> rows = at;
  Facts facts{form.shape};
  const auto source_axis = static_cast<size_t>(cache.source.axis);
  facts.extents[axis] = twins_.Normal(forms_.Of(theirs).shape[source_axis], Facts{});
  at[axis] = pool_.Add(rows[axis], pool_.Sub(twins_.total(), facts.extents[axis]));
  facts_.AddEqual(cache.id, "the last rows of [0, P + S) hold what the source's present holds",
                  Behind(present, at, rows[batch], facts),
                  SourceElement(cache, theirs, rows, facts), pool_.True(), facts);
  facts.extents[axis] = twins_.past();
  facts_.AddEqual(cache.id, "rows [0, P) are the past's own",
                  Behind(present, rows, rows[batch], facts), SourcePlace(cache, rows), pool_.True(),
                  facts);
  facts.extents[axis] = nullptr;
  at[axis] = pool_.Add(rows[axis], twins_.total());
  facts_.AddEqual(cache.id, "rows from P + S on are the past's own",
                  Behind(present, at, rows[batch], facts), SourcePlace(cache, at), pool_.True(),
                  facts);
}

// The source moves its rows and the converted model leaves them in place.
void CacheFacts::ProveShift(const ManifestCache& cache) {
  const ValueId present = pair_.After(cache.output);
  const sym::Form form = forms_.Of(present);
  const auto axis = static_cast<size_t>(cache.axis);
  const std::vector<Expr> at = Indices(form.shape.size());
  const Expr sequence = at[cache.layout.find('B')];
  const Facts facts{form.shape};
  const Expr mine = twins_.Translate(forms_.At(present, at, Facts{}), sequence, facts);
  const Expr theirs = SourceElement(cache, pair_.Before(cache.source.output), at, Facts{});
  for (const MovedRows& rows : *twins_.MovedOf(pair_.After(cache.input))) {
    facts_.AddEqual(cache.id,
                    fmt::format("slot (t + P + S) mod M holds row t of the source's present, of {}",
                                rows.text()),
                    rows.Mine(mine, facts, axis), rows.Theirs(theirs, facts, axis), pool_.True(),
                    rows.Extents(facts, axis));
  }
}

// The element that a slot keeps if it is not written: the past's at the same place, of the sequence
// whose past the source's present continues (beam reordering).
Expr CacheFacts::KeptElement(const ManifestCache& cache, Expr theirs, const std::vector<Expr>& at,
                             const Facts& facts) {
  const auto axis = static_cast<size_t>(cache.axis), batch = cache.layout.find('B');
  const Expr row = pool_.Index(static_cast<int>(axis));
  if (theirs == nullptr) return SourcePlace(cache, at);
  const Expr old = pool_.Assume(theirs, pool_.Lt(row, twins_.past(), Facts{}), true, facts);
  const auto source_axis = static_cast<size_t>(cache.source.axis);
  const bool moves = old->kind() == sym::Kind::kLoad &&
                     old->source() == pair_.Before(cache.source.input) &&
                     old->args()[source_axis] == row;
  if (!moves) return SourcePlace(cache, at);
  // In the source's axes the batch axis is the one that another index was read at.
  const Expr whole = SourcePlace(cache, at);
  if (whole == nullptr) return nullptr;
  std::vector<Expr> place(whole->args().begin(), whole->args().end());
  for (size_t k = 0; k < place.size(); ++k) {
    if (place[k] == at[batch]) place[k] = old->args()[k];
  }
  return pool_.Load(old->source(), place);
}

// The element of the present at the indices `at`. These are in the source's terms (P + S), so they
// are put into the element only after its translation.
Expr CacheFacts::Behind(ValueId present, const std::vector<Expr>& at, Expr sequence,
                        const Facts& facts) {
  const Expr e =
      twins_.Translate(forms_.At(present, Indices(at.size()), Facts{}), sequence, Facts{});
  if (e == nullptr) return nullptr;
  sym::Pool::Substitution s;
  s.indices = at;
  return pool_.Substitute(e, s, facts);
}

// The source's past at the indices `at` in the converted cache's layout.
Expr CacheFacts::SourcePlace(const ManifestCache& cache, const std::vector<Expr>& at) {
  const ValueId past = pair_.After(cache.input);
  return twins_.Translate(pool_.Load(past, at), at[cache.layout.find('B')], Facts{});
}

}  // namespace kvlift
