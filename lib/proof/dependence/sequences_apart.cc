#include "proof/dependence/sequences_apart.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "proof/graphs/operand_places.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;
using sym::Kind;

// The axis of a value that sequences are on, and its number of elements for each sequence.
struct Rows {
  int axis = -1;  // -1: the value is the same for all sequences
  Expr each = nullptr;
};

// The sequence for which an element is read.
struct Reading {
  Expr sequence = nullptr;  // null: for all sequences
  const Facts& facts;       // the extents of the indices
};

class SequencesReader {
 public:
  SequencesReader(const GraphPair& pair, const Correspondence& twins, Equality& equality,
                  const Manifest& relation)
      : pair_(pair),
        graph_(pair.graph()),
        forms_(pair.forms()),
        pool_(forms_.pool()),
        twins_(twins),
        equality_(equality),
        relation_(relation),
        sequences_(twins.sequences()) {
    for (const ManifestCache& cache : relation.caches) {
      pasts_.insert(pair.Before(cache.source.input));
    }
  }

  std::string Run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (pair_.IsInAfter(n)) continue;
      for (size_t k = 0; k < graph_.outputs(n).size(); ++k) Judge(n, static_cast<int>(k));
      JudgeSizes(n);
    }
    for (const std::string& name : ComparedResults(relation_)) {
      if (std::string why = WhyNot(name); !why.empty()) return why;
    }
    return "";
  }

 private:
  std::string WhyNot(const std::string& name) {
    const ValueId value = pair_.Before(name);
    if (value == kNoValue) return "";
    std::string why = WhyMixed(value);
    if (why.empty() && !AreWhereDeclared(value)) why = "its sequences are on another axis";
    return why.empty() ? "" : fmt::format("{}: {}", name, why);
  }

  // Returns true if sequences are on the axis of an output that declares their number, where the
  // host expects them, or if no axis declares it.
  bool AreWhereDeclared(ValueId value) {
    const auto rows = RowsOf(Shape(value));
    const auto& declared = graph_.type(value).shape;
    if (!declared) return true;
    bool says = false;
    for (size_t k = 0; k < declared->size(); ++k) {
      if ((*declared)[k].param.empty()) continue;
      const Expr size = twins_.Normal(pool_.Dim((*declared)[k].param), Facts{});
      if (size == sequences_ && static_cast<int>(k) == rows->axis) return true;
      says = says || size == sequences_;
    }
    return !says || rows->axis < 0;
  }

  // The shape in the source's terms, with one name for B; empty if the rank is not known.
  std::vector<Expr> Shape(ValueId value) {
    std::vector<Expr> shape = forms_.Of(value).shape;
    for (Expr& extent : shape) extent = twins_.Normal(extent, Facts{});
    return shape;
  }

  bool CountsSequences(Expr e) const { return sym::ContainsDim(e, sequences_->dim()); }

  // Returns nullopt if several axes contain B, or if an extent is not a multiple of B.
  std::optional<Rows> RowsOf(const std::vector<Expr>& shape) const {
    Rows rows;
    for (size_t k = 0; k < shape.size(); ++k) {
      if (!CountsSequences(shape[k])) continue;
      const Expr each = twins_.EachOf(shape[k]);
      if (rows.axis >= 0 || each == nullptr) return std::nullopt;
      rows = {static_cast<int>(k), each};
    }
    return rows;
  }

  // A value that forms look through is judged where it is read.
  void Judge(NodeId n, int output) {
    const ValueId result = graph_.outputs(n)[static_cast<size_t>(output)];
    if (result == kNoValue || !forms_.Of(result).opaque) return;
    const std::string why = WhyMixedResult(n, output, result);
    if (!why.empty()) mixed_[result] = why;
  }

  // Finds sizes that are known only when a node runs, such as the number of nonzero elements, and
  // that depend on several sequences because the node reads sequences.
  void JudgeSizes(NodeId n) {
    for (ValueId v : graph_.outputs(n)) {
      if (v == kNoValue || !forms_.Of(v).known_rank) continue;
      const std::vector<Expr> shape = forms_.Of(v).shape;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        const sym::DimSymbol own = forms_.OwnSymbol(v, static_cast<int>(axis));
        if (!sym::ContainsDim(shape[axis], own) || !SizeReadsSequences(n, axis)) continue;
        mixed_sizes_[own] = fmt::format("the size of axis {} of {} of {} takes in all sequences",
                                        axis, pair_.NameOf(v), graph_.node(n).op_type());
      }
    }
  }

  bool SizeReadsSequences(NodeId n, size_t axis) {
    if (!CutsByOthers(graph_.node(n).op_type())) return ReadsSequences(n);
    const auto inputs = graph_.inputs(n);
    const sym::Form cut = forms_.Of(inputs.front());
    if (!cut.known_rank || axis >= cut.shape.size()) return true;
    const Expr extent = twins_.Normal(cut.shape[axis], Facts{});
    return CountsSequences(extent) || !WhyMixedSize(extent).empty() ||
           std::any_of(inputs.begin() + 1, inputs.end(), [&](ValueId v) { return Differs(v); });
  }

  // Returns true if the extent of each axis of the result follows from that axis of the first
  // operand and from the other operands.
  static bool CutsByOthers(std::string_view op) {
    return op == "Slice" || op == "Pad" || op == "Tile" || op == "Conv" || op == "Resize";
  }

  // Says why an extent differs from that in the run of one sequence alone; empty if it does not.
  std::string WhyMixedSize(Expr extent) {
    if (std::string why = WhyMixedDims(extent); !why.empty()) return why;
    const Facts facts;
    return Alone(extent, {nullptr, facts}, pool_.True()) == nullptr ? why_ : "";
  }

  std::string WhyMixedDims(Expr e) const {
    if (mixed_sizes_.empty()) return "";
    for (const sym::DimSymbol& dim : sym::DimsOf(e)) {
      const auto mixed = mixed_sizes_.find(dim);
      if (mixed != mixed_sizes_.end()) return mixed->second;
    }
    return "";
  }

  std::string WhyMixedResult(NodeId n, int output, ValueId result) {
    const std::string what =
        fmt::format("{} of {}", pair_.NameOf(result), graph_.node(n).op_type());
    if (!forms_.Of(result).known_rank) return fmt::format("{} has no shape that is seen", what);
    const std::vector<Expr> shape = Shape(result);
    const auto rows = RowsOf(shape);
    if (!rows) return fmt::format("{} has sequences on no axis of their own", what);
    if (graph_.inputs(n).empty() && graph_.captures(n).empty()) return "";
    const auto places =
        graph_.captures(n).empty() ? OperandPlaces(forms_, n, output) : std::nullopt;
    if (!places) {
      return ReadsSequences(n) ? fmt::format("{} may take in several sequences", what) : "";
    }
    for (const OperandPlace& place : *places) {
      const ValueId operand = graph_.inputs(n)[static_cast<size_t>(place.input)];
      Facts facts{shape};
      for (Expr extent : place.taken) {
        facts.extents.push_back(twins_.Normal(extent, Facts{}));
        if (CountsSequences(facts.extents.back())) {
          return fmt::format("{} takes in all sequences", what);
        }
        if (std::string why = WhyMixedSize(facts.extents.back()); !why.empty()) return why;
      }
      const Expr e = twins_.Normal(forms_.At(operand, place.at, facts), facts);
      if (std::string why = WhyMixedElement(e, *rows, facts); !why.empty()) return why;
    }
    return "";
  }

  std::string WhyMixed(ValueId value) {
    const sym::Form form = forms_.Of(value);
    if (!form.known_rank) return "its shape is not seen";
    const std::vector<Expr> shape = Shape(value);
    const auto rows = RowsOf(shape);
    if (!rows) return "it has sequences on no axis of their own";
    for (Expr extent : shape) {
      if (std::string why = WhyMixedSize(extent); !why.empty()) return why;
    }
    const Facts facts{shape};
    return WhyMixedElement(twins_.Normal(form.element, facts), *rows, facts);
  }

  // Returns true if anything that the node reads differs by sequence or depends on B.
  bool ReadsSequences(NodeId n) {
    const auto differs = [&](ValueId v) { return Differs(v); };
    const auto inputs = graph_.inputs(n), captures = graph_.captures(n);
    return std::any_of(inputs.begin(), inputs.end(), differs) ||
           std::any_of(captures.begin(), captures.end(), differs);
  }

  bool Differs(ValueId v) {
    if (v == kNoValue || graph_.constant(v) != nullptr) return false;
    if (!forms_.Of(v).known_rank) return true;
    const auto rows = RowsOf(Shape(v));
    return !rows || rows->axis >= 0 || !WhyMixed(v).empty();
  }

  // Says why an element, of a value with these rows, differs from that in the run of its sequence
  // alone; empty if it does not.
  std::string WhyMixedElement(Expr e, const Rows& rows, const Facts& facts) {
    if (std::string why = WhyMixedDims(e); !why.empty()) return why;
    Expr sequence = nullptr, row = nullptr;
    if (rows.axis >= 0) {
      const Expr index = pool_.Index(rows.axis);
      sequence = pool_.FloorDiv(index, rows.each, facts);
      row = pool_.Mod(index, rows.each, facts);
    }
    const Expr together = Alone(e, {sequence, facts}, pool_.True());
    if (together == nullptr) return why_;
    sym::Pool::Substitution s;
    s.dims[sequences_->dim()] = pool_.Integer(1);
    if (row != nullptr) {
      s.indices.assign(static_cast<size_t>(rows.axis) + 1, nullptr);
      s.indices.back() = row;
    }
    const Expr alone = pool_.Substitute(e, s, facts);
    if (together == alone) return "";
    return fmt::format("{} is {} of the sequence alone", Text(together), Text(alone));
  }

  // Rewrites an element for the run of one sequence alone, wherever `known` holds. Returns null and
  // sets why_ if another sequence is read.
  Expr Alone(Expr e, const Reading& reading, Expr known) {
    if (e->kind() == Kind::kSelect) {
      const Expr c = e->args()[0];
      const Expr condition = Alone(c, reading, known);
      const Expr then = Alone(e->args()[1], reading, pool_.And(known, c));
      const Expr otherwise = Alone(e->args()[2], reading, pool_.And(known, pool_.Not(c)));
      if (condition == nullptr || then == nullptr || otherwise == nullptr) return nullptr;
      return pool_.Select(condition, then, otherwise);
    }
    sym::Pool::Substitution s;
    for (Expr load : sym::OuterLoadsOf(e)) {
      const Expr alone = AloneLoad(load, reading, known);
      if (alone == nullptr) return nullptr;
      s.atoms[load] = alone;
    }
    return s.atoms.empty() ? e : pool_.Substitute(e, s, reading.facts);
  }

  Expr AloneLoad(Expr load, const Reading& reading, Expr known) {
    const ValueId source = load->source();
    if (const auto mixed = mixed_.find(source); mixed != mixed_.end()) {
      return Refuse(mixed->second);
    }
    std::vector<Expr> args;
    for (Expr arg : load->args()) {
      args.push_back(Alone(arg, reading, known));
      if (args.back() == nullptr) return nullptr;
    }
    const auto rows = RowsOf(Shape(source));
    if (!rows) {
      return Refuse(fmt::format("{} has sequences on no axis of their own", pair_.NameOf(source)));
    }
    if (rows->axis < 0) return pool_.Load(source, args);
    const auto axis = static_cast<size_t>(rows->axis);
    const Expr place = load->args()[axis], sequence = reading.sequence;
    if (IsChosenByHost(source, place, sequence)) return pool_.Load(source, args);
    if (sequence == nullptr || !IsOf(sequence, place, rows->each, known, reading.facts)) {
      return Refuse(fmt::format("{} is read for every sequence", Text(load)));
    }
    args[axis] = pool_.Sub(args[axis], pool_.Mul(rows->each, sequence));
    return pool_.Load(source, args);
  }

  // Returns true if the index belongs to this sequence.
  bool IsOf(Expr sequence, Expr place, Expr each, Expr known, const Facts& facts) {
    const Expr row = pool_.Sub(place, pool_.Mul(each, sequence));
    const Expr inside =
        pool_.And(pool_.Le(pool_.Integer(0), row, facts), pool_.Lt(row, each, facts));
    return pool_.FloorDiv(place, each, facts) == sequence || inside->is_integer(1) ||
           equality_.Follows(known, inside, facts);
  }

  Expr Refuse(std::string why) {
    why_ = std::move(why);
    return nullptr;
  }

  // Returns true if the host chooses whose past a sequence continues, as in beam search. The run of
  // the sequence alone is then given that past.
  bool IsChosenByHost(ValueId source, Expr place, Expr sequence) const {
    if (!pasts_.contains(source) || place->kind() != Kind::kLoad || sequence == nullptr) {
      return false;
    }
    return graph_.is_graph_input(place->source()) && place->args().size() == 1 &&
           place->args()[0] == sequence;
  }

  std::string Text(Expr e) const { return sym::ToString(e, &graph_); }

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  sym::Pool& pool_;
  const Correspondence& twins_;
  Equality& equality_;
  const Manifest& relation_;
  Expr sequences_;  // B
  absl::flat_hash_set<ValueId> pasts_;
  std::string why_;  // why the last element was refused
  // Values that are not shown to be independent, and why.
  absl::flat_hash_map<ValueId, std::string> mixed_;
  absl::flat_hash_map<sym::DimSymbol, std::string> mixed_sizes_;  // sizes that are not, and why
};

}  // namespace

std::string FirstDependentOutput(const GraphPair& pair, const Correspondence& twins,
                                 Equality& equality, const Manifest& relation) {
  const Expr sequences = twins.sequences();
  if (sequences == nullptr) return "the number of sequences is not seen";
  if (sequences->kind() == Kind::kInteger) return "";
  if (sequences->kind() != Kind::kDim) return "the number of sequences has no name";
  return SequencesReader(pair, twins, equality, relation).Run();
}

}  // namespace kvlift
