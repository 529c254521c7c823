#include "verify/controls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "verify/mutants.h"

namespace kvlift {
namespace {

class Controls {
 public:
  Controls(const Driver& driver, const Graph& after, const Manifest& relation,
           const std::vector<Record>& records, const ControlOptions& options)
      : driver_(driver), after_(after), relation_(relation), options_(options) {
    // The plans that tell most come first.
    for (const Record& record : records) order_.push_back(&record);
    std::stable_sort(order_.begin(), order_.end(), [](const Record* a, const Record* b) {
      return a->steps.size() > b->steps.size();
    });
  }

  std::vector<ControlResult> Run() {
    MutantLimits limits;
    limits.ragged = options_.ragged;
    limits.many_tokens = options_.many_tokens;
    FindPositions(driver_.stimulus(), &limits);
    const bool none_hidden = !options_.many_tokens && !options_.ragged && !options_.pads;
    std::vector<ControlResult> results;
    std::optional<std::string> unguarded;
    for (const Mutant& mutant : MakeMutants(after_, relation_, limits)) {
      std::string detected = Detect(mutant);
      if (detected.empty() && mutant.guard) {
        // Something else may hide the same keys, or there is none to hide.
        if (!unguarded) unguarded = DetectUnguarded();
        if (unguarded->empty() && none_hidden) continue;
        if (!unguarded->empty()) {
          detected = "hidden otherwise, too; with nothing hidden: " + *unguarded;
        }
      }
      results.push_back({mutant.name, std::move(detected)});
    }
    return results;
  }

 private:
  // Inputs of the converted model that hold lengths or positions.
  void FindPositions(const Stimulus& stimulus, MutantLimits* limits) const {
    for (const ManifestInput& input : relation_.inputs) {
      if (input.as != "same" && input.as != "renamed") continue;
      const std::string& theirs = input.source.empty() ? input.name : input.source;
      const auto it = stimulus.interface().inputs.find(theirs);
      if (it == stimulus.interface().inputs.end() || !it->second.position) continue;
      const Meaning meaning = it->second.reading().meaning;
      const bool total = meaning == Meaning::kLast || meaning == Meaning::kTotal;
      if (total || meaning == Meaning::kPositions) limits->positions.push_back(input.name);
      if (total) limits->totals.insert(input.name);
    }
  }

  std::string DetectUnguarded() {
    for (const Mutant& mutant : MakeUnguarded(after_)) {
      const std::string detected = Detect(mutant);
      if (!detected.empty()) return detected;
    }
    return {};
  }

  std::string Detect(const Mutant& mutant) {
    auto runner = Runner::Create(mutant.model, options_.base_dir, {}, exec::AliasMode::kOff,
                                 options_.threads);
    if (!runner.ok()) return "compile: " + std::string(runner.status().message());
    std::string error;  // tells less than a difference
    for (const Record* record : order_) {
      // No step writes into what it is fed: the first state serves all mutants.
      CacheState& fresh = fresh_[record];
      if (fresh.empty()) fresh = driver_.Fresh(*runner, *record->plan);
      CacheState state = fresh;
      const Outcome outcome = driver_.RunConverted(*runner, *record, &state);
      if (outcome.difference) {
        return fmt::format("{}, step {}", record->plan->name, outcome.difference->step);
      }
      if (!outcome.failed.empty() && error.empty()) {
        error = fmt::format("{}, {}", record->plan->name, outcome.failed);
      }
    }
    return error;
  }

  const Driver& driver_;
  const Graph& after_;
  const Manifest& relation_;
  const ControlOptions& options_;
  std::vector<const Record*> order_;
  std::map<const Record*, CacheState> fresh_;
};

}  // namespace

std::vector<ControlResult> RunControls(const Driver& driver, const Graph& after,
                                       const Manifest& relation, const std::vector<Record>& records,
                                       const ControlOptions& options) {
  return Controls(driver, after, relation, records, options).Run();
}

}  // namespace kvlift
