// What the relation of two models says about their values: which element of the source's graph an
// element of the conversion's stands for.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "contract/manifest.h"
#include "proof/branches.h"
#include "proof/grounds.h"
#include "proof/moved_rows.h"
#include "proof/pair.h"
#include "proof/plain.h"
#include "proof/sameness.h"

namespace kvlift {

class Correspondence {
 public:
  // claims: of the source; they tell sizes, too.
  Correspondence(const GraphPair& pair, const Manifest& relation,
                 const std::vector<LengthClaim>& claims, const SourceCase& steps);

  // P and S, of the sequence at hand; null if the source's caches do not tell.
  sym::Expr past() const { return past_; }
  sym::Expr new_tokens() const { return new_; }
  sym::Expr total() const { return forms_.pool().Add(past_, new_); }
  // The number of sequences, by the first cache's past; null if no cache has an axis of its own for
  // them.
  sym::Expr sequences() const { return Normal(sequences_, sym::Facts{}); }
  // Whether the relation says of a size of the conversion that it is the number of sequences.
  bool IsOnePerSequence(const sym::DimSymbol& size) const { return per_sequence_.contains(size); }
  // The sequence that the element at i0, i1, ... of a value of the conversion belongs to, where the
  // first axis has as many elements for each of them.
  sym::Expr SequenceOf(absl::Span<const sym::Expr> shape, const sym::Facts& facts) const;
  // How many elements an axis of this extent has for each sequence; null if the extent is no
  // multiple of the number of sequences.
  sym::Expr EachOf(sym::Expr extent) const;
  // That P + S rows fit into the slots of each growing cache: writes that do not are refused; and
  // into masks that are padded up to a capacity.
  sym::Expr Fits() const;
  // What sizes are where the source's operators take the places that its forms say: that a slice
  // ends inside its axis.
  sym::Expr SourceFits() const;
  // Regions of the rows of a cache of the conversion, by its past, where they have other places
  // than in the source (proof/shifts.h, proof/rings.h); null if they have the same, or none that is
  // known.
  const std::vector<MovedRows>* MovedOf(ValueId after_past) const;
  // The same regions, of the first such cache that an expression of the conversion reads.
  const std::vector<MovedRows>* MovedIn(sym::Expr e) const;

  // What an element of the value is more than the claim says; null if that is not seen.
  sym::Expr Beyond(const LengthClaim& claim) const;

  // A value of the conversion is this value of the source from now on, on these grounds.
  void SetTwin(ValueId after, ValueId before, Sameness same, Grounds grounds);
  // A value [B, N / G, G * S, D] of the conversion is [B, N, S, D] of the source
  // (proof/lemmas/heads_regrouped.h); one [B, N, S, D] is [B * N, S, D] of the source.
  void SetStackedTwin(ValueId after, ValueId before, int64_t groups, sym::Expr tokens,
                      Grounds grounds);
  void SetFoldedTwin(ValueId after, ValueId before, int64_t heads, Grounds grounds);
  // A value [B, N, S, D] of one model is [B, S, N * D] of the other.
  void SetJoinedTwin(ValueId after, ValueId before, sym::Expr size, Grounds grounds);
  // What everything rests on that was translated or compared since the last call.
  Grounds TakeGrounds() const;
  // A comparison rests on this, too.
  void RestOn(Assumption assumption) const { grounds_.given.Add(std::move(assumption)); }
  void RestOn(const Grounds& grounds) const { grounds_.Add(grounds); }
  void RestOnLemma(const std::string& name) const { grounds_.AddLemma(name); }
  // How a value and its twin are the same; kNone unless `before` is the twin, axis by axis.
  Sameness TwinSameness(ValueId after, ValueId before) const;
  // What holds whatever is compared: sizes that are taken to be equal.
  const Assumptions& assumptions() const { return assumptions_; }
  // Why nothing may be proved: what sizes are taken to be can be so in no step. Empty if it can.
  // premises: further ones, of sizes. Nothing may be proved either if the source takes sizes to be
  // equal that differ in most steps.
  std::string Contradiction(absl::Span<const sym::Expr> premises) const;
  // The source's value that this value is: itself, if it is the source's; kNoValue if it has none.
  ValueId TwinOf(ValueId value) const;

  // An element of the conversion in terms of the source's values, P and S, for the sequence
  // `batch`, with rows of caches and masks below P + S only. Null if it reads anything that stands
  // for nothing there, such as another sequence's write index.
  sym::Expr Translate(sym::Expr e, sym::Expr batch, const sym::Facts& facts) const;
  // The place in the source's tensor of what the conversion's cache has at `at`; empty if it is the
  // past of no cache, or of one of another rank.
  std::vector<sym::Expr> SourcePlace(ValueId after_past, absl::Span<const sym::Expr> at) const;
  // An extent of the conversion, translated.
  sym::Expr Extent(sym::Expr e, sym::Expr batch) const;
  // An element of the source with one name for the past's length.
  sym::Expr Normal(sym::Expr e, const sym::Facts& facts) const;

 private:
  // Our own symbols: P, and how many tokens have left windows.
  static constexpr char kPast[] = "P of the sequence";
  static constexpr char kLeft[] = "rows that have left";

  struct Past {
    ValueId before = kNoValue;
    std::vector<int> axes;  // of the conversion's tensor, by axis of the source's; -1: fixed
    std::vector<int64_t> selected;              // where fixed
    size_t sequence = 0;                        // the source's axis of rows
    sym::Expr left = nullptr;                   // rows that the source has dropped; null: none
    bool known = true;                          // false: where its rows are is not told
    std::optional<Turn> turn;                   // of rows that have other places in the source
    sym::Expr first = nullptr, held = nullptr;  // these rows of them are there; null: all slots
    std::vector<MovedRows> moved;               // after the step
  };

  sym::Expr TranslateLoad(sym::Expr load, sym::Expr batch, const sym::Facts& facts) const;
  bool ReadsOtherSequence(ValueId source, absl::Span<const sym::Expr> at, sym::Expr batch) const;
  sym::Expr OneForAll(NodeId n, sym::Expr batch, const sym::Facts& facts) const;
  sym::Expr RowOfTable(NodeId n, absl::Span<const sym::Expr> args, sym::Expr batch,
                       const sym::Facts& facts) const;
  void AddPast(const ManifestCache& cache);
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
  void FindUnmet();
  const std::vector<sym::Expr>& FitParts() const;
  void FindExactQuotients();
  sym::Expr Fitted(sym::Expr e, const sym::Facts& facts) const;
  sym::Expr OfLongest(NodeId n, sym::Expr batch, const sym::Facts& facts) const;
  void FindDeclaredNames();
  void FindDeclaredExtents(const Manifest& relation);
  void SetSize(sym::Expr own, sym::Expr theirs);
  bool Holds(const std::vector<sym::Expr>& conditions, const std::vector<sym::DimSymbol>& free,
             const std::vector<size_t>& choice) const;
  void RestOnTwin(ValueId after) const;
  void RestOnOneLength() const;
  bool HasOneSequence(const ManifestCache& cache) const;

  const GraphPair& pair_;
  sym::Forms& forms_;
  bool uniform_ = false;
  absl::flat_hash_set<ValueId> positions_;  // inputs of the source that hold P..T-1
  bool one_ = false;                        // there is one sequence, number 0
  sym::Expr past_ = nullptr, new_ = nullptr;
  sym::Expr sequences_ = nullptr;  // B as the source declares it; null if it does not
  sym::Expr left_ = nullptr;       // tokens that have left windows; null if there are none
  // What sizes are by the terms of the source: its names of P; sizes that it runs with only if
  // they are equal to others; those of twins that only running them shows.
  absl::flat_hash_map<sym::DimSymbol, sym::Expr> sizes_;
  absl::flat_hash_map<ValueId, std::string> controls_;  // "P" or "T"
  absl::flat_hash_map<ValueId, Past> pasts_;
  absl::flat_hash_map<ValueId, ValueId> twins_;
  absl::flat_hash_map<ValueId, int64_t> folded_;  // of the twins, by heads
  struct Stack {
    int64_t groups = 1;
    sym::Expr tokens = nullptr;
  };
  absl::flat_hash_map<ValueId, Stack> stacked_;       // of the twins
  absl::flat_hash_map<ValueId, sym::Expr> joined_;    // of the twins, by the size of heads
  absl::flat_hash_set<ValueId> in_common_;            // of the conversion; the others are whole
  absl::flat_hash_map<ValueId, Grounds> grounds_of_;  // of the conversion
  std::string tree_;  // the input that says which new tokens see one another; empty: none
  Assumptions assumptions_;
  std::vector<sym::Expr> capacities_;      // slots of growing caches, columns of padded masks
  std::set<sym::DimSymbol> per_sequence_;  // sizes of controls
  std::set<sym::DimSymbol> batch_;         // names of the source for the number of sequences
  // The source's names for the number of new tokens, and for slots, where its caches do not grow.
  std::set<sym::DimSymbol> tokens_, slots_;
  // What the source's operators take sizes to be, in symbols and in words.
  struct Condition {
    sym::Expr predicate = nullptr;
    std::string text;
    bool broadcast = false;  // an operator takes other sizes, too, where one of them is 1
  };
  std::vector<Condition> conditions_;
  std::string unmet_;                    // what the source takes for granted and few steps have
  mutable std::set<sym::Expr> longest_;  // P + S of the longest sequence
  // What FitParts() last returned, for so many capacities and longest sequences.
  mutable std::vector<sym::Expr> fit_parts_;
  mutable std::pair<size_t, size_t> fit_counted_;
  mutable Grounds grounds_;
};

}  // namespace kvlift
