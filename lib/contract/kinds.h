// The kinds of things that a manifest names, one enumeration each. contract/words.h has the word
// that the JSON uses for each enumerator.
#pragma once

namespace kvlift {

// How an input of the converted model corresponds to the source (contract/manifest_entries.h).
enum class InputAs { kSame, kControl, kCache, kPadToCapacity, kRenamed };

// How an output of the converted model corresponds to the source (contract/manifest_entries.h).
enum class OutputAs { kSame, kCache, kRenamed };

// The value that the host feeds to an input that the source does not have. P is the number of past
// tokens of a sequence, S the number of new tokens of the step, and T = P + S.
enum class ControlValue {
  kPastLength,   // P of each sequence: the write index
  kTotalLength,  // T of each sequence: the valid length
  // The positions P..T-1 of the step's tokens, where no input of the source holds them. The shape
  // is ["B", "S"], ["1", "S"] or ["S"]. `convert` makes no such input; relations of models that
  // kvlift did not convert may have it.
  kPositions,
  // A bool mask [B, 1, S, S] that says which new tokens each new token sees (a tree mask). The
  // model equals its source if token i sees token j exactly for j <= i.
  kLowerTriangle,
  kSlots,      // companion models only (maintenance/maintenance.h): the slots that are kept
  kSequences,  // companion models only: for each sequence, the one whose rows it takes
};

// The number that all elements of an input must be, where the conversion relies on it.
enum class AllElements { kOnes, kZeros };

// The value that the source is fed at an input that the converted model does not have, besides
// those of AllElements. P and S are as in ControlValue.
enum class DroppedValue {
  kPositions,    // the positions P..T-1 of the step's tokens
  kWithPast,     // bool: true if P > 0
  kWithoutPast,  // bool: true if P == 0
  // The first rows and the lengths of the sequences of a KeyValueCache of OpenPPL's dynamic
  // batching (onnxio/model/functional_form.h). The conversion of such a model handles exactly one
  // sequence, so that the values are known.
  kStartsOfNewRows,  // [0, S]
  kStartsOfAllRows,  // [0, P + S]
  kFirstSlot,        // [0]
  kMostNewRows,      // S
  kMostRows,         // P + S
  kNotRead,          // any value, since no node reads the input
};

// The content of a cache's rows. A cache of scales belongs to a quantised cache of the same rows.
enum class CacheRole { kKey, kValue, kKeyValue, kKeyScale, kValueScale, kKeyValueScale };

// Returns true for the scales of a quantised cache.
constexpr bool HoldsScales(CacheRole role) {
  return role == CacheRole::kKeyScale || role == CacheRole::kValueScale ||
         role == CacheRole::kKeyValueScale;
}

// Returns the role of the scales that belong to a cache; a role of scales is returned unchanged.
constexpr CacheRole ScalesOf(CacheRole role) {
  switch (role) {
    case CacheRole::kKey:
      return CacheRole::kKeyScale;
    case CacheRole::kValue:
      return CacheRole::kValueScale;
    case CacheRole::kKeyValue:
      return CacheRole::kKeyValueScale;
    case CacheRole::kKeyScale:
    case CacheRole::kValueScale:
    case CacheRole::kKeyValueScale:
      break;
  }
  return role;
}

// How many buffers the host needs for past and present of a cache.
enum class CacheAlias {
  kSafe,  // one: present may be written over past
  kCopy,  // two
};

// How the source adds rows to a cache: by which operators, or which rows it keeps.
enum class UpdateKind {
  kConcat,         // behind the past, in a cache that grows
  kWindow,         // behind the past, of which the last rows are kept
  kScatter,        // ScatterND, ScatterElements or the like into a buffer
  kSplice,         // Concat of slices of a buffer and the new rows
  kSelect,         // Where between a buffer and the new rows
  kBlend,          // sums and products of a buffer and the new rows with masks
  kShift,          // the buffer's rows move to the front, and the new rows come last
  kSliding,        // an attention operator that keeps the newest rows in a SlidingBuffer
  kFused,          // an attention operator that also writes the cache, such as GroupQueryAttention
  kTensorScatter,  // TensorScatter
};

// Whether rows that go beyond the end of a buffer are written at its start.
enum class BufferMode { kLinear, kCircular };

// The rows of a buffer that the attention reads.
enum class CacheRead {
  kPrefix,  // its valid rows only
  kFull,    // all rows, with the valid length given beside them
};

// How a precondition of the converted model is ensured.
enum class PreconditionStatus {
  kProved,   // from the graphs
  kGuarded,  // an operator of the model fails where it does not hold
  kAssumed,  // the host has to see to it
};

// The evidence for a conversion when it was made.
enum class ShownEquality {
  kProved,    // every fact holds for all shapes
  kTested,    // facts are open, and the plans passed
  kUnproved,  // facts are open, and no plan ran
};

// Whether a model with a fixed number S of new tokens serves steps of fewer tokens, too.
enum class ShortSteps {
  // The host puts padding tokens behind the real ones. Their rows lie behind the write index of the
  // next step, which overwrites them.
  kPadRight,
  kNone,  // padding tokens would change the results for real tokens, or S is 1
};

// The operations of a companion model on the rows of caches (maintenance/maintenance.h).
enum class CompanionStep {
  kReorder,  // sequences take the rows of others
  kKeep,     // rows are dropped, and the others move up
};

// The source of the positions of new tokens after a companion model has dropped rows.
enum class PositionSource {
  // The host gives them. Stored rows keep the positions that they were made with, even if they
  // move.
  kGiven,
  kNone,  // the model uses no positions
};

}  // namespace kvlift
