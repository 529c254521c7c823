#include "verify/judge/by_layer.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "base/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/declared_sizes.h"
#include "proof/graphs/frozen_sizes.h"
#include "proof/prove/prove_conversion.h"
#include "verify/inputs/ledger.h"
#include "verify/inputs/relation_check.h"
#include "verify/layers/layer_pieces.h"
#include "verify/steps/plan_runner.h"
#include "verify/variants/lifted_types.h"

namespace kvlift {
namespace {

// Models with fewer layers than this are run whole, unless they have half types.
constexpr size_t kFewLayers = 3;

// Returns the rank of a plan's status, from best to worst. A plan that one class of layers skips
// has the status of the classes that run it.
int RankOf(const std::string& status) {
  const char* const kOrder[] = {"skipped", "bitwise", "within bound", "failed", "different"};
  const auto found = std::find(std::begin(kOrder), std::end(kOrder), status);
  return static_cast<int>(found - std::begin(kOrder));
}

// Merges the reports of several classes into one.
class Merger {
 public:
  explicit Merger(bool several) : several_(several) {}

  void Add(const std::string& name, VerifyReport report) {
    AddPlans(report.plans, &whole_.plans);
    for (const OutputResult& output : report.outputs) MergeOutput(output, &whole_.outputs);
    HalfTypesReport& half = whole_.half_types;
    half.computed_in_float32 |= report.half_types.computed_in_float32;
    if (half.not_run.empty()) half.not_run = report.half_types.not_run;
    half.decisions += report.half_types.decisions;
    half.unlike += report.half_types.unlike;
    AddPlans(report.half_types.plans, &half.plans);
    for (const OutputResult& output : report.half_types.outputs) MergeOutput(output, &half.outputs);
    for (ControlResult& control : report.controls) {
      if (several_) control.mutant += fmt::format(" ({})", name);
      whole_.controls.push_back(std::move(control));
    }
    whole_.aliases.insert(whole_.aliases.end(), report.aliases.begin(), report.aliases.end());
    AddCoverage(name, report.coverage);
    whole_.assumptions.Add(report.assumptions);
    AddOracle(report.oracle);
    if (whole_.rounding.step.empty()) whole_.rounding = report.rounding;
    if (!whole_.counterexample && report.counterexample) {
      whole_.counterexample = std::move(report.counterexample);
      if (several_) {
        whole_.counterexample->text = fmt::format("{}: {}", name, whole_.counterexample->text);
      }
    }
    if (is_first_ || IsWorse(report.verdict, whole_.verdict)) {
      whole_.verdict = report.verdict;
      whole_.reason = report.reason.empty() || !several_ ? report.reason : Of(name, report.reason);
    }
    is_first_ = false;
  }

  VerifyReport Take() { return std::move(whole_); }

 private:
  // Inserts the class's name behind the code that a reason begins with.
  static std::string Of(const std::string& name, const std::string& reason) {
    const size_t space = reason.find(' ');
    if (space == std::string::npos) return reason;
    return fmt::format("{} {}: {}", reason.substr(0, space), name, reason.substr(space + 1));
  }

  static void AddPlans(const std::vector<PlanResult>& plans, std::vector<PlanResult>* all) {
    for (const PlanResult& plan : plans) {
      const auto known = std::find_if(all->begin(), all->end(),
                                      [&](const PlanResult& p) { return p.name == plan.name; });
      if (known == all->end()) {
        all->push_back(plan);
        continue;
      }
      known->steps += plan.steps;
      if (RankOf(plan.status) <= RankOf(known->status)) continue;
      known->status = plan.status;
      known->note = plan.note;
    }
  }

  void AddCoverage(const std::string& name,
                   const std::vector<std::pair<std::string, std::string>>& lines) {
    for (const auto& line : lines) {
      const auto& known = whole_.coverage;
      if (std::find(known.begin(), known.end(), line) != known.end()) continue;
      const bool is_named = std::any_of(
          known.begin(), known.end(), [&](const auto& other) { return other.first == line.first; });
      whole_.coverage.emplace_back(is_named ? fmt::format("{} ({})", line.first, name) : line.first,
                                   line.second);
    }
  }

  void AddOracle(const OracleReport& oracle) {
    OracleReport& all = whole_.oracle;
    all.steps += oracle.steps;
    all.steps_seen += oracle.steps_seen;
    for (const std::string& op : oracle.without_meaning) {
      auto& known = all.without_meaning;
      if (std::find(known.begin(), known.end(), op) == known.end()) known.push_back(op);
    }
    all.doubtful.insert(oracle.doubtful.begin(), oracle.doubtful.end());
    all.sampled.insert(oracle.sampled.begin(), oracle.sampled.end());
    all.worst_ratio = std::max(all.worst_ratio, oracle.worst_ratio);
    all.disagreements += oracle.disagreements;
    if (!all.disagreement) all.disagreement = oracle.disagreement;
  }

  const bool several_;
  bool is_first_ = true;
  VerifyReport whole_;
};

// Whether the relation passes the checks that a verdict on whole models makes before it runs a
// plan.
bool IsRelationOf(const Model& before, const Graph& source, const Graph& result,
                  const Manifest& relation, const VerifyOptions& options) {
  if (!Misfit(source, result, relation).empty() || !Contradiction(relation, result).empty()) {
    return false;
  }
  return !options.source || before.digest == nullptr || relation.source_sha256.empty() ||
         before.digest->Hex() == relation.source_sha256;
}

LayerVerdict VerdictOf(const PieceClass& c) {
  LayerVerdict verdict;
  verdict.name = c.piece.name;
  verdict.others = c.others;
  verdict.same_nodes = c.same_nodes;
  return verdict;
}

// Returns the first size to which the whole models are restricted and a piece of them is not, since
// the input that declares its number is in another piece: "batch = 1". The plans of the piece would
// run sizes that the verdict does not cover. Returns an empty text if each piece shows all sizes.
std::string FirstOpen(absl::Span<const NamedSize> frozen, const ModelPiece& piece) {
  if (frozen.empty()) return {};
  const NamesOfSizes names = NamesOfSizesIn(piece.before.proto->graph());
  const auto own = FrozenSizesOf(*piece.before.proto, *piece.after.proto, piece.relation);
  for (const NamedSize& size : frozen) {
    if (!names.contains(size.name) || std::find(own.begin(), own.end(), size) != own.end()) {
      continue;
    }
    return fmt::format("{} = {}", size.name, size.size);
  }
  return {};
}

}  // namespace

absl::StatusOr<std::optional<VerifyReport>> VerifyByLayer(
    const Model& before, const Model& after, const Manifest& relation, const VerifyOptions& options,
    const Proof& proof, const VerifyWhole& verify, std::string* why) {
  if (!HoldsWhole(proof)) {
    *why = "not every fact of the whole models is proved";
    return std::nullopt;
  }
  KV_ASSIGN_OR_RETURN(const Graph source, Graph::Build(before.proto));
  KV_ASSIGN_OR_RETURN(const Graph result, Graph::Build(after.proto));
  if (!IsRelationOf(before, source, result, relation, options)) {
    *why = "the relation does not fit";
    return std::nullopt;
  }
  auto classes = CutIntoPieces(before, source, after, result, relation);
  if (!classes.ok()) {
    *why = std::string(classes.status().message());
    return std::nullopt;
  }
  size_t layers = 0, distinct = 0;
  for (const PieceClass& c : *classes) {
    if (c.same_nodes) continue;
    ++distinct;
    layers += 1 + c.others.size();
  }
  if (layers < kFewLayers && !HasHalfTypes(*before.proto)) {
    *why = "the models have few layers";
    return std::nullopt;
  }
  const std::vector<NamedSize> frozen = FrozenSizesOf(*before.proto, *after.proto, relation);
  std::vector<Proof> proofs(classes->size());  // by class
  for (size_t k = 0; k < proofs.size(); ++k) {
    const PieceClass& c = (*classes)[k];
    if (c.same_nodes) continue;
    const ModelPiece& piece = c.piece;
    if (const std::string open = FirstOpen(frozen, piece); !open.empty()) {
      *why = fmt::format("{}, which {} alone does not show", open, piece.name);
      return std::nullopt;
    }
    proofs[k] = ProveConversion(*piece.before.proto, *piece.after.proto, piece.relation);
    if (HoldsWhole(proofs[k])) continue;
    *why = fmt::format("what is proved of the whole models is not proved of {} alone", piece.name);
    return std::nullopt;
  }
  Merger merger(distinct > 1);
  std::vector<LayerVerdict> verdicts;
  size_t run = 0;
  for (size_t k = 0; k < proofs.size(); ++k) {
    const PieceClass& c = (*classes)[k];
    verdicts.push_back(VerdictOf(c));
    if (c.same_nodes) continue;
    const ModelPiece& piece = c.piece;
    VerifyOptions of_piece = options;
    const std::string which =
        fmt::format("{} ({} of {} kinds of layers)", piece.name, ++run, distinct);
    if (options.say) {
      of_piece.say = [&](const std::string& what) {
        options.say(fmt::format("{}: {}", which, what));
      };
    }
    KV_ASSIGN_OR_RETURN(VerifyReport report,
                        verify(piece.before, piece.after, piece.relation, of_piece, &proofs[k]));
    if (report.plans.empty()) {
      *why = fmt::format("{} cannot be run alone: {}", piece.name, report.reason);
      return std::nullopt;
    }
    const bool goes_on = Accepts(report.verdict, Accept::kTested);
    merger.Add(piece.name, std::move(report));
    if (!goes_on) break;
  }
  VerifyReport whole = merger.Take();
  whole.proof = proof;
  whole.assumptions.Add(ClaimsOf(relation, source, result));
  whole.assumptions.Add(proof.assumptions);
  for (const ProofFact& fact : proof.facts) {
    for (const Assumption& given : fact.given) whole.assumptions.Add(given);
  }
  whole.layers = std::move(verdicts);
  return whole;
}

}  // namespace kvlift
