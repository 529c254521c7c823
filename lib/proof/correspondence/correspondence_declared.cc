// Gives sizes to the dimensions that inputs declare, in the source's terms.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "contract/layout.h"
#include "fmt/format.h"
#include "proof/correspondence/correspondence.h"
#include "proof/reading/mask_widths.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

namespace {

// Returns the condition that the sizes of the axes are the first one's.
FedNumber AreOneSize(const std::vector<InputAxis>& axes) {
  using FedKind = FedNumber::Kind;
  FedNumber all{FedKind::kAnd};
  const auto size_of = [](const InputAxis& axis) {
    return FedNumber{FedKind::kSize, axis.axis, axis.input};
  };
  for (const InputAxis& axis : axes) {
    const FedNumber minus{
        FedKind::kProduct, 0, {}, {size_of(axes.front()), FedNumber{FedKind::kInteger, -1}}};
    const FedNumber sum{FedKind::kSum, 0, {}, {size_of(axis), minus}};
    all.args.push_back({FedKind::kIsZero, 0, {}, {sum}});
  }
  return all;
}

}  // namespace

// Inputs of the source that declare a dimension of one name are fed with one size.
void Correspondence::FindDeclaredNames() {
  const Graph& graph = pair_.graph();
  std::map<std::string, std::vector<std::string>> places;
  std::map<std::string, std::vector<InputAxis>> fed;
  std::set<ValueId> pasts;
  for (const auto& [after, past] : pasts_) pasts.insert(past.before);
  for (ValueId input : graph.graph_inputs()) {
    if (pair_.NameOf(input) != graph.name(input) || !graph.type(input).shape) continue;
    const auto& shape = *graph.type(input).shape;
    for (size_t k = 0; k < shape.size(); ++k) {
      if (shape[k].param.empty()) continue;
      places[shape[k].param].push_back(fmt::format("{}.shape[{}]", graph.name(input), k));
      if (pasts.contains(input)) continue;
      fed[shape[k].param].push_back({graph.name(input), static_cast<int>(k)});
    }
  }
  for (const auto& [name, all] : places) {
    if (all.size() < 2) continue;
    const std::string text = fmt::format("{} = {}", name, fmt::join(all, " = "));
    assumptions_.Add({AssumptionKind::kDimension, name, text, AssumptionSource::kHost});
    if (fed[name].size() < 2) continue;
    equal_sizes_.conditions.push_back({AreOneSize(fed[name]), text, std::nullopt});
  }
}

// The caches of all layers often declare one capacity. Each is listed once, so that the work for a
// layer does not grow with their number.
void Correspondence::AddCapacity(Expr slots) {
  if (std::find(capacities_.begin(), capacities_.end(), slots) == capacities_.end()) {
    capacities_.push_back(slots);
  }
}

// Gives sizes to inputs that only the converted model has, by what the manifest says of their axes.
void Correspondence::FindDeclaredExtents(const Manifest& relation) {
  Expr sequences = nullptr;
  InputAxes given;
  FindExtentsOfCaches(relation, &sequences, &given);
  FindExtentsOfInputs(relation, sequences, &given);
  FindNamesOfOtherAxes(given);
  if (past_ != nullptr && new_ != nullptr) FindWidthsOfMasks(relation, sequences);
}

void Correspondence::SetDeclared(ValueId input, size_t axis, Expr theirs, InputAxes* given) {
  given->emplace(input, axis);
  SetSize(forms_.Of(input).shape[axis], theirs);
}

// The axes of a cache are the source's, apart from its slots.
void Correspondence::FindExtentsOfCaches(const Manifest& relation, Expr* sequences,
                                         InputAxes* given) {
  for (const ManifestCache& cache : relation.caches) {
    const auto found = pasts_.find(pair_.After(cache.input));
    if (found == pasts_.end()) continue;
    const auto axes = AxesOfLayout(cache.layout);
    const bool is_alike = cache.layout == cache.source.layout && cache.source.select.empty();
    if (axes.size() != cache.layout.size() && !is_alike) {
      const auto sequence = std::find(axes.begin(), axes.end(), "B");
      given->emplace(found->first, sequence - axes.begin());
      continue;
    }
    const Past& past = found->second;
    const sym::Form mine = forms_.Of(found->first), theirs = forms_.Of(past.before);
    if (!mine.known_rank || !theirs.known_rank || theirs.shape.size() != past.axes.size()) continue;
    const sym::Form present = forms_.Of(pair_.Before(cache.source.output));
    for (size_t k = 0; k < past.axes.size(); ++k) {
      const int axis = past.axes[k];
      if (axis < 0 || axis >= static_cast<int>(mine.shape.size())) continue;
      const auto letter = static_cast<size_t>(axis);
      if (cache.layout[letter] == 'B' && *sequences == nullptr) *sequences = theirs.shape[k];
      if (k == past.sequence && BecomesBuffer(cache)) {
        if (!cache.ring) AddCapacity(mine.shape[letter]);
        continue;
      }
      // The source's past may have room for more sequences than a step has; its present has those
      // of the step.
      const bool step = cache.layout[letter] == 'B' && !cache.source.growing &&
                        present.known_rank && present.shape.size() == theirs.shape.size();
      SetDeclared(found->first, letter, (step ? present : theirs).shape[k], given);
    }
  }
}

// The axes of a control input are B or S.
void Correspondence::FindExtentsOfInputs(const Manifest& relation, Expr sequences,
                                         InputAxes* given) {
  for (const ManifestInput& input : relation.inputs) {
    const ValueId after = pair_.After(input.name);
    if (after == kNoValue) continue;
    const sym::Form mine = forms_.Of(after);
    if (!mine.known_rank) continue;
    const ControlInput* control = AsControl(input);
    for (size_t k = 0; control != nullptr && k < mine.shape.size(); ++k) {
      const std::string letter = k < control->shape.size() ? control->shape[k] : "";
      if (letter == "B" && mine.shape[k]->kind() == Kind::kDim) {
        per_sequence_.insert(mine.shape[k]->dim());
      }
      if (letter == "B") SetDeclared(after, k, sequences, given);
      if (letter == "S") SetDeclared(after, k, new_, given);
      // An axis of heads that all hold the same has extent 1.
      if (letter == "1|N") SetDeclared(after, k, forms_.pool().Integer(1), given);
    }
    const auto twin = twins_.find(after);
    const PaddedInput* padded = AsPadded(input);
    if (padded == nullptr || twin == twins_.end()) continue;
    const sym::Form theirs = forms_.Of(twin->second);
    if (!theirs.known_rank || theirs.shape.size() != mine.shape.size()) continue;
    for (size_t k = 0; k < mine.shape.size(); ++k) {
      if (static_cast<int64_t>(k) != padded->axis) {
        SetDeclared(after, k, theirs.shape[k], given);
      } else {
        AddCapacity(mine.shape[k]);  // a padded mask has a column for each token
      }
    }
    // The host feeds a mask with a row for each sequence, whatever the mask declares; a single row
    // would be broadcast.
    if (padded->axis > 0 && sequences != nullptr && new_ != nullptr) {
      const Expr apart = forms_.pool().Sub(theirs.shape[0], sequences);
      MakeZero(Normal(apart, Facts{}), AssumptionKind::kDimension, input.name);
    }
  }
}

// Masks that both models are fed have a column for each token as well.
void Correspondence::FindWidthsOfMasks(const Manifest& relation, Expr sequences) {
  std::set<sym::DimSymbol> open;
  for (ValueId input : pair_.graph().graph_inputs()) {
    if (pair_.After(pair_.graph().name(input)) != input) continue;
    const sym::Form form = forms_.Of(input);
    for (size_t k = 0; form.known_rank && k < form.shape.size(); ++k) {
      if (form.shape[k]->kind() != Kind::kDim) continue;
      const sym::DimSymbol& name = form.shape[k]->dim();
      if (!IsFree(name) && !sizes_.contains(name) && !batch_.contains(name)) open.insert(name);
    }
  }
  for (const auto& [input, rows, columns] : SizesOfMasks(pair_, relation, std::move(open))) {
    sym::Pool& pool = forms_.pool();
    MakeZero(Normal(pool.Sub(columns, total()), Facts{}), AssumptionKind::kMaskWidth, input);
    if (rows == nullptr || sequences == nullptr) continue;
    MakeZero(Normal(pool.Sub(rows, sequences), Facts{}), AssumptionKind::kDimension, input);
  }
}

// A name that the converted model declares for an axis of known size may be that of another axis as
// well, for example the slots of a cache. Forms then have one size for both, which runtimes do not
// enforce. `given`: the axes that SetSize() was called for.
void Correspondence::FindNamesOfOtherAxes(const InputAxes& given) {
  for (ValueId input : pair_.graph().graph_inputs()) {
    const std::string own = pair_.NameOf(input);
    if (pair_.After(own) != input || pair_.Before(own) == input) continue;
    const sym::Form form = forms_.Of(input);
    for (size_t k = 0; form.known_rank && k < form.shape.size(); ++k) {
      if (given.contains({input, k})) continue;
      const Expr size = Normal(form.shape[k], Facts{});
      if (size == form.shape[k]) continue;
      assumptions_.Add({AssumptionKind::kDimension, own,
                        fmt::format("{}.shape[{}] = {}", own, k, sym::ToString(size)),
                        AssumptionSource::kHost});
    }
  }
}

// Sets a size of the converted model to one of the source. If it already has another value, or is a
// size of the source itself, the two sizes of the source are assumed to be equal.
void Correspondence::SetSize(Expr own, Expr theirs) {
  if (own == nullptr || theirs == nullptr) return;
  theirs = Normal(theirs, Facts{});
  if (Normal(own, Facts{}) == theirs) return;
  const bool is_source = own->kind() == Kind::kDim && IsDeclaredBySource(own->dim());
  if (own->kind() == Kind::kDim && !is_source && sizes_.try_emplace(own->dim(), theirs).second) {
    return;
  }
  sym::Pool& pool = forms_.pool();
  const Expr other = Normal(own, Facts{});
  if (other == theirs) return;
  if (is_source && theirs->kind() != Kind::kDim) {
    // The source's own size would get a value that it has in some steps only.
    const Expr equal = pool.Eq(theirs, other, Facts{});
    return RefuseUnlessMet(equal, sym::ToString(equal));
  }
  if (MakeZero(pool.Sub(theirs, other), AssumptionKind::kDimension, "") || !unmet_.empty()) return;
  unmet_ = fmt::format("the converted model declares {} and {} as one size", sym::ToString(other),
                       sym::ToString(theirs));
}

bool Correspondence::IsDeclaredBySource(const sym::DimSymbol& name) const {
  const auto origin = forms_.OriginOf(name);
  return origin && pair_.NameOf(origin->input) == pair_.graph().name(origin->input);
}

}  // namespace kvlift
