// The kinds of things that a manifest names, one enumeration each. contract/words.h has the word
// that the JSON uses for each enumerator.
#pragma once

namespace kvlift {

// How an input of the converted model corresponds to the source (contract/manifest_entries.h).
enum class InputAs { kSame, kControl, kCache, kPadToCapacity, kRenamed };

// How an output of the converted model corresponds to the source (contract/manifest_entries.h).
enum class OutputAs { kSame, kCache, kRenamed };

// What the host feeds to an input that the source does not have. P is the number of past tokens of
// a sequence, S the number of new tokens of the step, and T = P + S.
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

// What the source is given at an input that the converted model does not have, besides
// AllElements. P and S are as in ControlValue.
enum class DroppedValue {
  kPositions,    // the positions P..T-1 of the step's tokens
  kWithPast,     // bool: true if P > 0
  kWithoutPast,  // bool: true if P == 0
  // Where the sequences of a KeyValueCache of OpenPPL's dynamic batching begin and how long they
  // are (onnxio/in_out.h). The conversion of such a model handles exactly one sequence, so that the
  // values are known.
  kStartsOfNewRows,  // [0, S]
  kStartsOfAllRows,  // [0, P + S]
  kFirstSlot,        // [0]
  kMostNewRows,      // S
  kMostRows,         // P + S
  kNotRead,          // any value, since no node reads the input
};

}  // namespace kvlift
