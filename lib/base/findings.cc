#include "base/findings.h"

#include <algorithm>
#include <array>

namespace kvlift {
namespace {

// Sorted by code. Every code is triggered by at least one test (tests/findings_coverage_test).
constexpr auto kFindings = std::to_array<FindingInfo>({
    // KV1xx: ONNX and operator rules.
    {"KV101", "invalid-model", "ONNX's checker or shape inference refuses the model",
     "Every runtime may refuse it, too.", "See ONNX's message."},
    {"KV102", "opset-too-old", "an operator needs a newer opset than the model imports",
     "At the imported opset the operator, or an input of it, does not exist.",
     "Raise the opset import."},
    {"KV103", "ir-too-old", "the IR version is older than the opset's release",
     "Most runtimes do not mind; strict ones may.", "Raise the IR version to 12."},
    {"KV110", "attention-heads", "query heads are no multiple of key and value heads",
     "Each group of query heads shares one key head.", "Check the head counts."},
    {"KV111", "attention-head-size", "queries and keys have different head sizes",
     "Their products are not defined.", "Check the last dimension or the head counts."},
    {"KV112", "attention-lengths", "keys and values differ in length",
     "Each key has one value.", "Check which caches are wired to the node."},
    {"KV113", "attention-batch", "the operands have different batches",
     "Attention does not broadcast the batch.", "Check the first dimension."},
    {"KV114", "attention-rank", "an operand has the wrong rank, or 3-D operands lack head counts",
     "A 3-D operand can only be split into heads by q_num_heads and kv_num_heads.",
     "Set the attributes, or use 4-D operands."},
    {"KV115", "nonpad-form", "nonpad_kv_seqlen has the wrong type or length",
     "It holds one int64 length per sequence.", "Check what feeds it."},
    {"KV116", "nonpad-with-past", "nonpad_kv_seqlen is used together with a past",
     "The operator text forbids it: the cache is either inside or outside the operator.",
     "Remove one of them."},
    {"KV117", "attention-mask", "the mask cannot broadcast, or has the wrong type",
     "A mask of rank 3 counts heads, not sequences.", "Give it rank 4."},
    {"KV118", "attention-past", "past_key and past_value are not given together",
     "One without the other has no meaning.", "Give both."},
    {"KV119", "causal-top-left", "is_causal aligns the mask top-left",
     "Without past and nonpad_kv_seqlen the first query sees the first key only, however many keys "
     "there are.",
     "Use nonpad_kv_seqlen, past inputs or an explicit mask."},
    {"KV120", "write-indices-form", "write_indices has the wrong type or length",
     "It holds one int64 index per sequence.", "Check what feeds it."},
    {"KV121", "update-too-long", "the update is longer than the cache",
     "There is no room for it.", "Check the capacity."},
    {"KV122", "scatter-axis", "the axis of a TensorScatter is the batch, or out of range",
     "Each sequence is written on its own.", "Name the sequence axis."},
    {"KV123", "scatter-mode", "the mode of a TensorScatter is unknown",
     "ONNX's checker lets it pass, runtimes do not.", "Use linear or circular."},
    {"KV124", "update-form", "the update does not fit the cache",
     "All axes but the sequence must agree, and the type.", "Check the update."},
    {"KV125", "constant-index-outside", "a constant write index leaves the buffer",
     "Such a write is an error, or lost.", "Check the constant."},
    {"KV130", "manifest-mismatch", "model and manifest contradict each other",
     "A host that follows the manifest would fail.", "Write the manifest anew."},
    // KV2xx: not convertible.
    {"KV201", "opset-cannot-be-raised", "an operator cannot be raised to opset 24",
     "TensorScatter and the Attention with nonpad_kv_seqlen exist from opset 24 on, and the newer "
     "version of this operator may compute something else.",
     "Export the model at a newer opset."},
    {"KV202", "no-append", "a present is computed from its past, but not by an append",
     "Only rows written into an otherwise unchanged past become a TensorScatter.",
     "Look at the expression of the present with `explain MODEL --node NAME`."},
    {"KV203", "new-tokens-in-front", "the new tokens are put in front of the past",
     "The past moves with every step, so no write index exists.",
     "Append the new tokens behind the past."},
    {"KV204", "fixed-capacity-write", "a cache of fixed capacity is written in place by index",
     "Writes into a buffer of fixed capacity are recognised, but not rewritten yet.",
     "Export with a growing cache."},
    {"KV205", "shifting-buffer", "the buffer shifts with every step",
     "Valid rows sit at the end of the buffer and move; a linear TensorScatter leaves rows where "
     "they are.",
     "Export with a growing cache, or with a write index."},
    {"KV206", "fused-cache-operator", "an operator keeps past and present by itself",
     "The cache never appears as a tensor that is updated in the graph.",
     "Export with standard operators, or keep the operator and let its runtime share the buffer."},
    {"KV207", "cache-in-branch", "the cache is updated inside a branch or loop body",
     "The branches of a merged decoder update different caches; they are not merged here.",
     "Export the decoder with past on its own, without merging."},
    {"KV210", "attention-shape", "an attention has a form that Attention-24 cannot take over",
     "Attention-24 takes queries [B, N, S, D] and scores in the order batch, head, query, key.",
     "Look at the node named; a Reshape or Transpose in front of it often explains the refusal."},
    {"KV211", "scores-not-read", "the scores are not a scaled product plus a mask",
     "A bias that depends on positions would have to be drawn as wide as the buffer.",
     "See `explain MODEL --node NAME` for what stands in the way."},
    {"KV212", "no-attention-reads-it", "no attention reads the cache",
     "Without a reader that takes a valid length, stale rows of a fixed buffer would be read.",
     "Check that the cache belongs to an attention at all."},
    {"KV213", "operand-is-no-cache", "keys or values of an attention are not the cache itself",
     "Arithmetic between the cache and the attention cannot be left out.",
     "Check the node named."},
    {"KV214", "cache-read-elsewhere", "something else reads the cache, too",
     "Another reader would see the fixed buffer where it saw the valid rows.",
     "Remove the other reader, or keep the model as it is."},
    {"KV215", "depends-on-past-length", "a value depends on the past's length in a way that cannot "
     "be derived from a write index",
     "With a buffer of fixed size, the shape of the past no longer tells its length.",
     "Give positions as a graph input."},
    {"KV216", "mask-not-drawn", "the mask cannot be drawn from the write index",
     "What the mask depends on cannot be computed at the place where it is needed.",
     "See the expression in the text."},
    {"KV217", "layout-unsupported", "the cache has a layout that is not supported",
     "Caches of rank 4 with batch, heads, sequence and head size are supported.",
     "Export with one tensor of rank 4 for keys and one for values per layer."},
    {"KV219", "no-source-for-length", "nothing tells the past's length without a new input",
     "A derived control needs an input that is as long as past and new tokens together.",
     "Use --control input."},
    {"KV220", "present-without-past", "an output looks like a present, but has no past",
     "A prefill-only graph starts from nothing: there is no cache to update.",
     "Convert the decoder with past."},
    {"KV221", "scatter-without-cache", "a scatter writes into a computed tensor",
     "Masks are drawn by scatters, too; a cache update writes into a graph input.",
     "Nothing to do."},
    {"KV222", "already-converted", "the cache is written by TensorScatter already",
     "A converted model keeps its interface; converting it again would change nothing.",
     "Nothing to do."},
    {"KV223", "held-back", "convertible, but held back by something else in the model",
     "A model with one cache that cannot be converted is left alone as a whole.",
     "See the other reason, or use --allow-partial."},
    {"KV224", "mask-not-causal", "--mask causal was asked for, but the mask says more",
     "Dropping the rest of the mask would change results.",
     "Use --mask auto."},
    // KV3xx: preconditions.
    {"KV301", "write-inside-capacity", "the write must stay inside the buffer",
     "TensorScatter refuses, or worse, a write behind the capacity.",
     "Check the length before each step."},
    {"KV302", "finite-unused-slots", "unused slots of a cache must hold finite numbers",
     "Some runtimes multiply masked values by zero, and zero times NaN is NaN.",
     "Fill new caches with zeros."},
    {"KV303", "fully-masked-rows", "rows of pad queries may differ",
     "A query that sees no key gives 0 in Attention-24, and an average or NaN in the source.",
     "Ignore the outputs of pad tokens, as hosts do."},
    {"KV304", "equal-cache-lengths", "all caches of a step hold the same number of tokens",
     "One write index serves all layers.",
     "Feed caches of the same step."},
    {"KV305", "padding-dropped", "the padding mask was dropped",
     "With --padding none nothing tells pads from tokens.",
     "Feed sequences without pads only."},
    {"KV306", "uniform-lengths", "all sequences of a batch share one length",
     "Something in the graph takes one position for the whole batch.",
     "Batch sequences of equal length, or give positions as a graph input."},
    // KV4xx: verification.
    // KV5xx: writing.
});

}  // namespace

absl::Span<const FindingInfo> AllFindings() { return kFindings; }

const FindingInfo* FindFinding(std::string_view code) {
  const auto* it =
      std::lower_bound(kFindings.begin(), kFindings.end(), code,
                       [](const FindingInfo& info, std::string_view c) { return info.code < c; });
  return it != kFindings.end() && it->code == code ? it : nullptr;
}

}  // namespace kvlift
