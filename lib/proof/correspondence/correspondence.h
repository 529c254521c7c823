// Maps elements of the converted model to the elements of the source that they equal, by the
// manifest and by what the proof has shown so far. Sizes: correspondence_sizes.cc; sizes that
// inputs declare: correspondence_declared.cc; elements: correspondence_translation.cc.
//
// The twin of a converted model's value is the source's value that it equals. Where a function
// returns an expression, null means that the source has nothing that is known to correspond.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "contract/fed_rules.h"
#include "contract/manifest.h"
#include "proof/graphs/grounds.h"
#include "proof/graphs/pair.h"
#include "proof/graphs/repeated_nodes.h"
#include "proof/lower/branches.h"
#include "proof/lower/expand_contrib_ops.h"
#include "proof/rows/moved_rows.h"
#include "proof/rows/sameness.h"

namespace kvlift {

class Correspondence {
 public:
  // `claims`: the claims of the operators that ExpandContribOps expanded in the source; they
  // determine sizes as well.
  Correspondence(const GraphPair& pair, const Manifest& relation,
                 const std::vector<LengthClaim>& claims, const SourceCase& steps);

  // P and S of the current sequence, S = new_tokens(); null if the source's caches do not determine
  // them.
  sym::Expr past() const { return past_; }
  sym::Expr new_tokens() const { return new_; }
  // P + S; null if P or S is null.
  sym::Expr total() const {
    return past_ == nullptr || new_ == nullptr ? nullptr : forms_.pool().Add(past_, new_);
  }
  // B, the extent of the batch axis of the first cache in the source; null if no cache has such an
  // axis.
  sym::Expr sequences() const { return Normal(sequences_, sym::Facts{}); }
  // Returns true if the manifest says that a dimension of the converted model is the number of
  // sequences.
  bool IsOnePerSequence(const sym::DimSymbol& size) const { return per_sequence_.contains(size); }
  // Returns the number of the sequence that element i0, i1, ... of a value of this shape belongs
  // to:
  // i0 div r if the first axis has B * r elements, and i0 otherwise. Null if the converted model
  // computes r from the lengths of its sequences, which may differ.
  sym::Expr SequenceOf(absl::Span<const sym::Expr> shape, const sym::Facts& facts) const;
  // Returns r for an extent B * r; null if the extent is not a multiple of B.
  sym::Expr EachOf(sym::Expr extent) const;
  // The predicate that P, S and P + S rows fit into the slots of each growing cache, and into each
  // mask that is padded to the capacity. Writes that do not fit are refused.
  sym::Expr Fits() const;
  // The bounds that the source's forms assume of sizes, for example that a Slice ends inside its
  // axis.
  sym::Expr SourceFits() const;
  // Returns true if the value is the past of a cache in the converted model.
  bool IsPast(ValueId after_past) const { return pasts_.contains(after_past); }
  // Returns the regions of the rows of a cache, named by its past in the converted model, if rows
  // are in other slots than in the source (proof/rows/shifts.h, proof/rows/rings.h). Null if they
  // are in the same slots, or if their slots are not known.
  const std::vector<MovedRows>* MovedOf(ValueId after_past) const;
  // Returns MovedOf of the first cache with moved rows that `e`, an expression of the converted
  // model, reads; null if it reads none.
  const std::vector<MovedRows>* MovedIn(sym::Expr e) const;

  // Returns the difference between the elements of LengthClaim::value and the length that is
  // claimed for them: 0 if the claim holds; null if a shape is not known.
  sym::Expr Beyond(const LengthClaim& claim) const;

  // Sets the twin of a converted model's value, their sameness, and its grounds. Replaces an
  // earlier twin.
  void SetTwin(ValueId after, ValueId before, Sameness same, Grounds grounds);
  // Set a twin whose heads are arranged differently. Groups as tokens: the converted model has
  // [B, N / G, G * S, D] for the source's [B, N, S, D] (proof/lemmas/heads_regrouped.h), with
  // G = `groups` and S = `tokens`. Batch times heads: the converted model has [B, N, S, D] for the
  // source's [B * N, S, D], with N = `heads`.
  void SetTwinWithGroupsAsTokens(ValueId after, ValueId before, int64_t groups, sym::Expr tokens,
                                 Grounds grounds);
  void SetTwinWithBatchTimesHeads(ValueId after, ValueId before, int64_t heads, Grounds grounds);
  // Says that the heads of a value's twin, which was set as [B, N, S, D], are on two axes in the
  // source: [B, N / G, G, S, D], with G = `groups`.
  void SplitHeads(ValueId after, int64_t groups) { heads_by_group_[after] = groups; }
  // Sets a twin of which one model has [B, N, S, D] and the other [B, S, N * D], with D = `size`.
  void SetTwinWithHeadsInLastAxis(ValueId after, ValueId before, sym::Expr size, Grounds grounds);
  // Sets a twin that is [B, N / G, G * S, D] in the converted model and [B, S, N * D] in the
  // source.
  void SetTwinWithGroupsAsTokensAndHeadsInLastAxis(ValueId after, ValueId before, int64_t groups,
                                                   sym::Expr tokens, sym::Expr size,
                                                   Grounds grounds);
  // Returns the grounds of all translations and comparisons since the last call, and clears them.
  Grounds TakeGrounds() const;
  // Add to the grounds of the current comparison.
  void RestOn(Assumption assumption) const { grounds_.given.Add(std::move(assumption)); }
  void RestOn(const Grounds& grounds) const { grounds_.Add(grounds); }
  void RestOnLemma(const std::string& name) const { grounds_.AddLemma(name); }
  // Returns how a value and `before` are the same; kNone unless `before` is the twin, or what a
  // node computes that repeats the twin's, and has the same arrangement of axes.
  Sameness TwinSameness(ValueId after, ValueId before) const;
  // The assumptions that hold for all facts: sizes that are taken to be equal.
  const Assumptions& assumptions() const { return assumptions_; }
  // What assumptions() say of sizes of the source's inputs. Of those that inputs declare by one
  // name, the sizes of caches are left out.
  const FedRules& equal_sizes() const { return equal_sizes_; }
  // Says why nothing can be proved; empty if something can. Nothing can be proved if the assumed
  // sizes and `premises` hold for no small numbers, or if the source requires sizes to be equal
  // that differ in most steps.
  std::string Contradiction(absl::Span<const sym::Expr> premises) const;
  // Returns the source's value that equals `value`: `value` itself if it is the source's, else its
  // twin; kNoValue if it has no twin.
  ValueId TwinOf(ValueId value) const;

  // Rewrites an element of the converted model in terms of the source's values, P and S, for
  // sequence `batch`; rows of caches and masks have to be below P + S. Returns null if the element
  // reads something that has no counterpart, such as the write index of another sequence, and if
  // `batch` is null. `facts` bounds the indices. Adds to TakeGrounds().
  sym::Expr Translate(sym::Expr e, sym::Expr batch, const sym::Facts& facts) const;
  // Returns the indices, in the source's cache, of the element of the converted cache at `at`.
  // Empty if `after_past` is the past of no cache or `at` has too few axes.
  std::vector<sym::Expr> SourcePlace(ValueId after_past, absl::Span<const sym::Expr> at) const;
  // Rewrites an extent of the converted model in terms of the source.
  sym::Expr Extent(sym::Expr e, sym::Expr batch) const;
  // Rewrites an element of the source with one name for P and with known sizes substituted. Null
  // stays null.
  sym::Expr Normal(sym::Expr e, const sym::Facts& facts) const;
  // Simplifies an expression in the source's terms under Fits(). A result other than `e` rests on
  // RestOnFits().
  sym::Expr Fitted(sym::Expr e, const sym::Facts& facts) const;
  // Adds to the grounds of the current comparison that the rows fit into the slots.
  void RestOnFits() const;

 private:
  // Internal dimensions: P, and the number of tokens that have left the windows.
  static constexpr char kPast[] = "P of the sequence";
  static constexpr char kLeft[] = "rows that have left";

  struct Past {
    ValueId before = kNoValue;
    // The converted model's axis for each axis of the source's tensor; -1 where the source's index
    // is fixed.
    std::vector<int> axes;
    std::vector<int64_t> selected;  // the fixed index, by axis of the source's tensor
    size_t sequence = 0;            // the source's axis of rows
    // The slot of the source's row 0, such as the number of rows that the source has dropped from
    // the front; null for 0.
    sym::Expr left = nullptr;
    bool known = true;  // false: it is not known which row a slot holds
    // The slot of each row, if the slots differ from the source's.
    std::optional<Turn> turn;
    // The buffer holds the source's rows [first, first + held); null if every slot holds a row.
    sym::Expr first = nullptr, held = nullptr;
    // The regions of rows after the step; empty if all slots are the source's.
    std::vector<MovedRows> moved;
  };

  sym::Expr TranslateLoad(sym::Expr load, sym::Expr batch, const sym::Facts& facts) const;
  bool ReadsOtherSequence(ValueId source, absl::Span<const sym::Expr> at, sym::Expr batch) const;
  sym::Expr OneForAll(NodeId n, sym::Expr batch, const sym::Facts& facts) const;
  std::vector<sym::Expr> PlaceInTable(NodeId n, absl::Span<const sym::Expr> args,
                                      const sym::Facts& facts) const;
  sym::Expr RowOfTable(NodeId n, absl::Span<const sym::Expr> args, sym::Expr batch,
                       const sym::Facts& facts) const;
  void AddPast(const ManifestCache& cache);
  bool HoldsOneStep(const Manifest& relation);
  void FindLengths(const Manifest& relation, const SourceCase& steps);
  void FindWindows(const Manifest& relation, const SourceCase& steps);
  bool FindShifts(const Manifest& relation);
  void FindRings(const Manifest& relation);
  sym::Expr PastRow(const Past& past, ValueId source, absl::Span<const sym::Expr> args,
                    const sym::Facts& facts) const;
  void FindEqualExtents(const Manifest& relation, const std::vector<LengthClaim>& claims);
  bool MakeZero(sym::Expr difference, AssumptionKind kind, const std::string& subject,
                const std::set<sym::DimSymbol>& kept = {});
  void FindFreeSizes(const Manifest& relation);
  void FindSizesOfSteps(const Manifest& relation);
  bool IsOfSteps(const std::vector<sym::DimSymbol>& names) const;
  bool IsFree(const sym::DimSymbol& name) const;
  void TakeAsMet(sym::Expr condition, const std::string& text, bool broadcast);
  void RefuseUnlessMet(sym::Expr part, const std::string& text);
  void FindUnmet(const SourceCase& steps);
  void FindUnmetByFirstStep(const SourceCase& steps);
  const std::vector<sym::Expr>& FitParts() const;
  void FindExactQuotients();
  sym::Expr OfLongest(NodeId n, sym::Expr batch, const sym::Facts& facts) const;
  void FindDeclaredNames();
  void AddCapacity(sym::Expr slots);
  void FindDeclaredExtents(const Manifest& relation);
  using InputAxes = absl::flat_hash_set<std::pair<ValueId, size_t>>;
  // Sets *sequences to B of the first cache that has it, and adds to `given` the axes that have
  // their sizes.
  void FindExtentsOfCaches(const Manifest& relation, sym::Expr* sequences, InputAxes* given);
  void FindExtentsOfInputs(const Manifest& relation, sym::Expr sequences, InputAxes* given);
  void FindWidthsOfMasks(const Manifest& relation, sym::Expr sequences);
  void SetDeclared(ValueId input, size_t axis, sym::Expr theirs, InputAxes* given);
  void FindNamesOfOtherAxes(const InputAxes& given);
  void SetSize(sym::Expr own, sym::Expr theirs);
  bool IsDeclaredBySource(const sym::DimSymbol& name) const;
  bool Holds(const std::vector<sym::Expr>& conditions, const std::vector<sym::DimSymbol>& free,
             const std::vector<size_t>& choice) const;
  void RestOnTwin(ValueId after) const;
  void RestOnOneLength() const;
  void BoundTokens(const ManifestCache& cache);
  bool HasOneSequence(const ManifestCache& cache) const;

  const GraphPair& pair_;
  sym::Forms& forms_;
  const RepeatedNodes repeated_;
  bool uniform_ = false;
  // Inputs of the source that were dropped and hold P..T-1.
  absl::flat_hash_set<ValueId> positions_;
  bool one_ = false;  // the batch has one sequence, number 0
  sym::Expr past_ = nullptr, new_ = nullptr;
  // B as the source declares it; null if it does not.
  sym::Expr sequences_ = nullptr;
  // The number of tokens that have left the windows; null if there are no windows.
  sym::Expr left_ = nullptr;
  // Sizes in the source's terms: its names for P, sizes that its operators force to be equal to
  // others, and sizes of twins that are known only when the model runs.
  absl::flat_hash_map<sym::DimSymbol, sym::Expr> sizes_;
  absl::flat_hash_map<ValueId, ControlValue> controls_;
  absl::flat_hash_map<ValueId, Past> pasts_;
  absl::flat_hash_map<ValueId, ValueId> twins_;
  // The next four are by converted value: N of a twin with batch times heads, G of SplitHeads, a
  // twin with groups as tokens, and D of a twin with heads in the last axis.
  absl::flat_hash_map<ValueId, int64_t> batch_times_heads_;
  absl::flat_hash_map<ValueId, int64_t> heads_by_group_;
  struct GroupsAsTokens {
    int64_t groups = 1;
    sym::Expr tokens = nullptr;
  };
  absl::flat_hash_map<ValueId, GroupsAsTokens> groups_as_tokens_;
  absl::flat_hash_map<ValueId, sym::Expr> heads_in_last_axis_;
  // Converted values that are Sameness::kInCommon with their twin; all others are kWhole.
  absl::flat_hash_set<ValueId> in_common_;
  absl::flat_hash_map<ValueId, Grounds> grounds_of_;  // by converted value: what its twin rests on
  std::string tree_;  // the name of the tree mask input; empty for none
  Assumptions assumptions_;
  FedRules equal_sizes_;
  // The slots of growing caches and the columns of padded masks, each once.
  std::vector<sym::Expr> capacities_;
  std::set<sym::DimSymbol> per_sequence_;  // dimensions of control inputs that are B
  std::set<sym::DimSymbol> batch_;         // the source's names for B
  // The source's names for S, and for the slots of its caches that do not grow.
  std::set<sym::DimSymbol> tokens_, slots_;
  // A condition that an operator of the source requires of sizes, as a predicate and in words.
  struct Condition {
    sym::Expr predicate = nullptr;
    std::string text;
    bool broadcast = false;  // the operator broadcasts where one of the sizes is 1
  };
  std::vector<Condition> conditions_;
  // A condition of the source that few steps satisfy, in words; empty if there is none.
  std::string unmet_;
  mutable std::set<sym::Expr> longest_;  // P + S of the longest sequence, by ReduceMax node
  // The last result of FitParts(), and the numbers of capacities and of longest sequences at that
  // time.
  mutable std::vector<sym::Expr> fit_parts_;
  mutable std::pair<size_t, size_t> fit_counted_;
  mutable Grounds grounds_;
};

// The assumption that all sequences of a batch hold the same number of tokens, which the manifest
// states (Manifest::uniform).
Assumption SequencesOfOneLength();

}  // namespace kvlift
