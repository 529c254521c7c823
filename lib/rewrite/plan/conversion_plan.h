// The plan of a conversion as data: what becomes of each cache and of each attention, and what the
// parts share; or the reason why nothing is converted. MakePlan (rewrite/judge/make_plan.h) makes
// it, and EmitPlan (rewrite/emit/emit_plan.h) turns it into nodes without deciding anything.
//
// An expression that the result computes is a sym::Emitter::Request. Its symbols are those of the
// source and the ones below, and MakePlan has asked a sym::EmissionProbe whether there are nodes
// for it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/findings.h"
#include "rewrite/plan/attended_slices.h"
#include "rewrite/plan/planned_cache.h"
#include "rewrite/recognise/rotations.h"
#include "rewrite/types/resolved_options.h"
#include "sym/emit/emit.h"

namespace kvlift {

// Returns the symbol W, the number of keys that attention is given, for the expressions of masks.
inline sym::DimSymbol KeysSymbol() { return sym::DimSymbol::Internal("W"); }
// Returns the symbol C, the number of slots of the rings for windows of this many rows.
inline sym::DimSymbol RingSymbol(int64_t window) {
  return sym::DimSymbol::Internal("C" + std::to_string(window));
}
// Returns the symbol M, the number of slots of the buffers that growing caches become.
inline sym::DimSymbol CapacitySymbol() { return sym::DimSymbol::Internal("M"); }

// Why a conversion is refused as a whole.
struct PlanRefusal {
  // kModel: this scheme does not fit the model; another one may. kOption: an option asks for what
  // the model does not have, and every scheme would refuse it.
  enum class Cause { kModel, kOption } cause = Cause::kModel;
  Finding finding;
};

// The ways to convert growing caches.
enum class Scheme {
  kPerSequence,  // each sequence of a batch has a past length of its own
  kUniform,      // all sequences of a batch have one past length
  // Like kUniform. Attention-24 gives 0 for a query without visible keys, and something else reads
  // such rows: attentions of which the source may give another number for them stay.
  kUniformKeepUnguarded,
};

// The extents and inputs that all parts of a plan share.
struct SharedExtents {
  sym::Expr batch = nullptr, new_length = nullptr;  // B and S
  // A cache's past (on its axis B) or an input (on axis 0) whose extent is `batch`.
  ValueId batch_source = kNoValue;
  // Replaces the symbols in `lengths` by expressions of PastSymbol() and S.
  sym::Pool::Substitution normal;
  std::vector<sym::DimSymbol> lengths;  // dim symbols of the source that mean P or depend on it
  // Masks of the host: inputs, each with an axis that is as long as the keys.
  std::set<std::pair<ValueId, int>> key_length_masks;
};

// PlannedIndex says where the result takes the past's length from. NoIndex: the caches are buffers
// of the source, and their write indices are expressions of the source's inputs.
struct NoIndex {};
// P + S is the extent of an input of the source.
struct DerivedIndex {
  ValueId input = kNoValue;
  int axis = 0;
};
// The host feeds the past's length. Each field is the name of a new input; empty: there is no such
// input.
struct IndexInputs {
  std::string write_indices;     // int64 [B]
  std::string nonpad_kv_seqlen;  // int64 [B]; empty: the graph computes it
  std::string tree_mask;         // bool [B, 1 or N, S, S]
};
using PlannedIndex = std::variant<NoIndex, DerivedIndex, IndexInputs>;

// WriteIndex says what TensorScatter's write_indices of one cache are. SharedIndex: those of
// PlannedIndex, one per sequence.
struct SharedIndex {};
// The past length of the batch, once for each index on the cache's axis 0.
struct RepeatedIndex {
  sym::Expr count = nullptr;
};
// The index that the source writes at, for buffers of the source.
struct SourceIndex {
  sym::Emitter::Request slot;      // one number for each index on the cache's axis 0
  sym::Emitter::Request start;     // [B], before the modulo
  sym::Expr new_length = nullptr;  // rows
};
using WriteIndex = std::variant<SharedIndex, RepeatedIndex, SourceIndex>;

// NewRows says where the new rows of a cache come from: a value of the source, in the layout of the
// result or of the source; values that are stacked along the axes that hold several caches; or
// nodes for their expression.
struct RowsInTargetLayout {
  ValueId value = kNoValue;
};
struct RowsInSourceLayout {
  ValueId value = kNoValue;
};
struct StackedRows {
  std::vector<ValueId> parts;    // in row-major order of the packed axes
  std::vector<sym::Expr> shape;  // of the rows, in the source's layout
};
struct DrawnRows {
  sym::Emitter::Request rows;  // in the source's layout
};
using NewRows = std::variant<RowsInTargetLayout, RowsInSourceLayout, StackedRows, DrawnRows>;

// How a step writes into a PlannedCache.
struct PlannedWrite {
  WriteIndex index;
  NewRows rows;
  // The rows are of the narrower type of the cache's numbers (sym::HoldsNarrowerNumbers). They are
  // sliced, to all of them, before the Cast to the cache's type: ONNX Runtime may compute the
  // narrower type in a wider one, and leaves out two Casts that meet, and with them the rounding.
  bool narrow_rows = false;
  // The past with its sequences reordered, which is written instead of the past; M stands for its
  // slots. Absent: the past is written as it is.
  std::optional<sym::Emitter::Request> reordered_past;
  // Values that are views of the rows which attention reads; empty unless ConversionPlan::views().
  std::vector<AttendedSlice> attended_slices;
  // Values that Slices of the source read from the present, along the sequence axis alone; empty if
  // they read a view or another layout in the result.
  std::vector<ValueId> slices;
};

// KeysRead says which rows of its key and value caches an Attention-24 is given.
// SourceRows: the rows that the source's attention reads.
struct SourceRows {};
// Slots [0, P + S).
struct ValidRows {};
// The whole buffer; nonpad_kv_seqlen says how many of its rows are valid.
struct AllSlots {};
// The whole buffer, all of which counts as valid; the mask hides the unused slots.
struct AllSlotsValid {
  sym::Expr slots = nullptr, batch = nullptr;  // extents
};
using KeysRead = std::variant<SourceRows, ValidRows, AllSlots, AllSlotsValid>;

// A value that is added to the scores.
struct PlannedBias {
  ValueId value = kNoValue;
  bool cut_to_keys = false;   // it is longer than the keys that attention is given
  bool splits_heads = false;  // [B*N, S, T] becomes [B, N, S, T]
  // Above 0: [B, Nk, G, S, T] becomes [B, joined_heads, S, T].
  int64_t joined_heads = 0;
  // The bias in the order of the slots of a FifoRing, instead of the value.
  std::optional<sym::Emitter::Request> in_ring_order;
};

// An Attention-24 that replaces an AttentionSite.
struct PlannedAttention {
  KeysRead keys;
  bool is_causal = false;
  // bool [B or 1, N or 1, S, W]; absent: is_causal and the valid length hide all that is hidden.
  std::optional<sym::Emitter::Request> mask;
  bool tree = false;  // the mask is combined with IndexInputs::tree_mask
  // The mask is added to the scores, and hides unused slots.
  bool additive = false;
  bool states_length = true;  // the operator is given nonpad_kv_seqlen
  // The mask may show a query tokens behind it, which Padding::kNone permits.
  bool sees_later_tokens = false;
  // [1, N, 1, 1]: the score of a key of zeros behind the others, whose value is zeros. Absent:
  // there is no sink. With a sink, `additive` is true, and nonpad_kv_seqlen counts all keys.
  std::optional<sym::Emitter::Request> sink;
  std::vector<PlannedBias> biases;
  bool expands_biases = false;      // Expand gives their sum the full extents S and W
  bool mask_has_heads = false;      // the mask, or a bias, has an axis of N heads
  bool groups_as_tokens = false;    // the queries of a group are stacked on the axis of tokens
  bool heads_in_last_axis = false;  // queries, keys, values and result are [B, ., N*D]
  std::optional<float> scale;       // absent: the default of the operator
  float softcap = 0;                // 0: no softcap
  int32_t softmax_precision = 0;    // onnx TensorProto::DataType; 0: the default of the operator
  // With --padding none: inputs with the number that all their elements are assumed to be, for this
  // attention or for one before it.
  std::map<ValueId, int64_t> assumed;
};

// Unjudged: the plan was refused before. A Finding: why the attention stays.
struct Unjudged {};
using AttentionOutcome = std::variant<Unjudged, PlannedAttention, Finding>;

// An operand that is replaced at a node that stays, since it depends on the past's length: by a
// whole constant table instead of its first rows, or by an expression over the write index.
struct RederivedOperand {
  NodeId node = kNoNode;
  int operand = 0;
  std::variant<ValueId, sym::Emitter::Request> value;
};

// Why no padding tokens may be among the new tokens of a step: a state takes in every token; a node
// computes all tokens of a step together; it computes with other rows of a step; an attention lets
// queries see later tokens; or padding tokens would move the rows that a step writes.
struct StateTakesTokens {};
struct TokensTogether {
  NodeId node = kNoNode;
};
struct OtherRowsRead {
  NodeId node = kNoNode;
};
struct LaterTokensSeen {
  NodeId node = kNoNode;
};
// The write index is a length that the host feeds, minus the number of new tokens.
struct IndexFromTotalLength {};
using NoPadding = std::variant<StateTakesTokens, TokensTogether, OtherRowsRead, LaterTokensSeen,
                               IndexFromTotalLength>;

// All caches are quantised when they are written (rewrite/emit/quantize_caches.h).
struct PlannedQuantization {
  CacheQuantization how;
  // The scales follow the rules of the source's KeyValueCache, which has tensors of its own for
  // them.
  bool as_source = false;
};

// How wide the host makes the masks in SharedExtents::key_length_masks: as for the source, P + S
// where the source may declare another name for it, or the capacity.
enum class MaskWidth { kAsSource, kTotalLength, kCapacity };

struct ConversionPlan {
  ResolvedOptions options;
  // If set, nothing but `attention` is valid.
  std::optional<PlanRefusal> refusal;
  // One element for each of Analysis::attention. If `refusal` is set, it may be empty or partly
  // unjudged.
  std::vector<AttentionOutcome> attention;

  bool uniform = false;  // growing caches have one past length for all sequences of a batch
  // Why all sequences of a batch are written at one slot, or must hold the same number of tokens;
  // absent: neither holds.
  std::optional<std::string> uniform_reason;
  std::optional<NoPadding> no_padding;  // absent: a step may have padding tokens
  // The host's masks, or an input that a mask reads at the key, may hide all keys from a query.
  bool may_hide_all_keys = false;
  SharedExtents extents;
  PlannedIndex index;
  std::vector<PlannedCache> caches;  // by index of Analysis::updates, as is `writes`
  std::vector<PlannedWrite> writes;
  // Index in `caches` of the cache whose extent is the capacity of growing caches; -1: max_seq_len
  // gives the capacity, or no growing cache is linear.
  int capacity_cache = -1;
  MaskWidth mask_width = MaskWidth::kAsSource;
  std::map<ValueId, int64_t> assumed;  // PlannedAttention::assumed of the last attention
  std::set<ValueId> dropped;           // masks that the result does not have
  std::vector<RederivedOperand> operands;
  // Values that have one row per sequence on axis 0 where the source has one for all.
  std::set<ValueId> widened;
  std::vector<Rotation> rotations;  // they become RotaryEmbedding
  std::optional<PlannedQuantization> quantization;
  bool one_tensor = false;  // caches that are parts of one tensor in the source stay so
  std::map<ValueId, std::string> names;  // new names of pasts and presents; empty: they keep theirs
  // Conditions on inputs and sizes that the forms assume and that the host must keep to.
  std::vector<sym::FormAssumption> assumptions;

  // Returns true if attention is given the valid rows of a buffer, not the whole buffer.
  bool prefix_read() const { return options.read != ReadForm::kFull; }
  // Returns true if growing caches (rings not included) are read through views of their valid rows,
  // so that readers which cannot be rewritten may stay.
  bool views() const { return uniform && prefix_read(); }
  bool grows() const;
  const PlannedAttention* replaced(size_t k) const {
    return std::get_if<PlannedAttention>(&attention[k]);
  }
};

// Returns the values of the source that the rows are computed from.
std::vector<ValueId> ValuesOf(const NewRows& rows);

// Returns the values of the source that new nodes for caches and attentions read, in the order in
// which they are emitted.
std::vector<ValueId> ValuesRead(const Analysis& analysis, const ConversionPlan& plan);

}  // namespace kvlift
