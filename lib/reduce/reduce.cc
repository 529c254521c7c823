#include "reduce/reduce.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "reduce/aligned_names.h"
#include "reduce/reductions.h"
#include "reduce/shared_values.h"
#include "verify/inputs/relation_check.h"

namespace kvlift {
namespace {

// Why models may be invalid.
struct Validity {
  bool checked = true;  // ONNX's checker and shape inference accept all models
  bool related = true;  // the relation fits them
};

Validity ValidityOf(const Subject& subject) {
  Validity validity;
  validity.checked = CheckModel(*subject.model.proto).ok();
  if (!subject.is_pair()) return validity;
  const Subject::Conversion& conversion = *subject.conversion;
  validity.checked = validity.checked && CheckModel(*conversion.model.proto).ok();
  const auto before = Graph::Build(subject.model.proto);
  const auto after = Graph::Build(conversion.model.proto);
  validity.related =
      before.ok() && after.ok() && Misfit(*before, *after, conversion.relation).empty();
  return validity;
}

class Reducer {
 public:
  Reducer(Trials* trials, const ReduceOptions& options) : trials_(trials), options_(options) {}

  absl::StatusOr<Subject> Run(Subject subject) {
    wanted_ = ValidityOf(subject);
    subject_ = std::make_unique<Subject>(std::move(subject));
    KV_ASSIGN_OR_RETURN(graphs_, SubjectGraphs::Of(*subject_, options_.types));
    AlignNames();
    TakeAway(DescriptionsReduction());
    TakeAway(ConstantsReduction());
    for (bool smaller = true; smaller && !trials_->over();) {
      smaller = TakeAway(OutputsReduction());
      smaller = TakeAway(NodesReduction()) || smaller;
      smaller = TakeAway(PassedNodesReduction()) || smaller;
      smaller = TakeAway(BranchesReduction()) || smaller;
      smaller = TakeAway(BodyNodesReduction()) || smaller;
      smaller = TakeAway(InputsReduction()) || smaller;
      smaller = TakeAway(WeightsReduction()) || smaller;
      smaller = TakeAway(RowsReduction()) || smaller;
      smaller = TakeAway(DescriptionsReduction()) || smaller;
    }
    return std::move(*subject_);
  }

 private:
  // Values with one name in both models are where a pair can be cut.
  void AlignNames() {
    auto found = trials_->FindFirst(1, [&](size_t) -> std::optional<Subject> {
      std::optional<Subject> candidate = WithAlignedNames(*graphs_);
      return candidate && IsValid(*candidate) ? std::move(candidate) : std::nullopt;
    });
    if (found) Accept(std::move(found->subject), "other names");
  }

  // Takes away as many elements as possible: all, then a half of them at once, then a quarter, and
  // so on, down to single ones. Returns whether any went.
  bool TakeAway(const Reduction& reduction) {
    bool smaller = false;
    std::vector<std::string> elements = reduction.Elements(*graphs_);
    for (size_t size = elements.size(); size > 0 && !trials_->over(); size /= 2) {
      bool here = TakeAwayAtOnce(reduction, size);
      smaller = smaller || here;
      // Outputs that stand for nodes which went are rarely needed, and each keeps nodes.
      if (here && &reduction == &NodesReduction()) TakeAway(OutputsReduction());
    }
    return smaller;
  }

  // Takes away up to `size` neighbours at once, from the first element on.
  bool TakeAwayAtOnce(const Reduction& reduction, size_t size) {
    bool smaller = false;
    std::vector<std::string> elements = reduction.Elements(*graphs_);
    for (size_t begin = 0; begin < elements.size() && !trials_->over();) {
      const size_t count = (elements.size() - begin + size - 1) / size;
      const auto elements_of = [&](size_t k) {
        return absl::MakeConstSpan(elements).subspan(begin + k * size, size);
      };
      auto found =
          trials_->FindFirst(count, [&](size_t k) { return Candidate(reduction, elements_of(k)); });
      if (!found) break;
      const size_t behind = std::min(begin + (found->index + 1) * size, elements.size());
      if (!Accept(std::move(found->subject), reduction.name())) break;
      smaller = true;
      const absl::flat_hash_set<std::string> rest(elements.begin() + static_cast<ptrdiff_t>(behind),
                                                  elements.end());
      elements = reduction.Elements(*graphs_);
      const auto next = std::find_if(elements.begin(), elements.end(),
                                     [&](const std::string& e) { return rest.contains(e); });
      begin = static_cast<size_t>(next - elements.begin());
    }
    return smaller;
  }

  std::optional<Subject> Candidate(const Reduction& reduction,
                                   absl::Span<const std::string> elements) const {
    auto candidate = reduction.Without(*graphs_, elements);
    if (!candidate.ok() || !IsSmaller(*candidate, reduction)) return std::nullopt;
    if (!IsValid(*candidate)) return std::nullopt;
    return *std::move(candidate);
  }

  bool IsValid(const Subject& candidate) const {
    const Validity validity = ValidityOf(candidate);
    return validity.checked >= wanted_.checked && validity.related >= wanted_.related;
  }

  // Returns whether the candidate is a step that cannot be undone by others, so that the search
  // ends.
  bool IsSmaller(const Subject& candidate, const Reduction& reduction) const {
    const SubjectSize now = SizeOf(*subject_), then = SizeOf(candidate);
    if (reduction.adds_nodes()) return then.bytes < now.bytes;
    const auto key = [](const SubjectSize& size) {
      return std::tuple(size.nodes, size.outputs, size.bytes);
    };
    return key(then) < key(now);
  }

  bool Accept(Subject subject, std::string_view what) {
    auto next = std::make_unique<Subject>(std::move(subject));
    auto graphs = SubjectGraphs::Of(*next, options_.types, graphs_.get());
    if (!graphs.ok()) return false;
    graphs_ = *std::move(graphs);
    subject_ = std::move(next);
    if (options_.say) options_.say(what, *subject_);
    return true;
  }

  Trials* const trials_;
  const ReduceOptions& options_;
  Validity wanted_;
  std::unique_ptr<Subject> subject_;
  std::unique_ptr<SubjectGraphs> graphs_;  // of *subject_
};

}  // namespace

absl::StatusOr<Subject> Reduce(Subject subject, Trials* trials, const ReduceOptions& options) {
  return Reducer(trials, options).Run(std::move(subject));
}

}  // namespace kvlift
