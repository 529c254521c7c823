// Lists the possible meanings of each input of a source model (token ids, positions, a mask, ...),
// and finds which of its axes is as long as the batch, the new tokens, the keys or the slots.
//
// Both are derived from declared shapes, from the caches of the relation and from the use of the
// value in the graph (input_uses.h); names only break ties. Where several readings remain, all are
// listed, the likeliest first, and source_probe.h runs the source to choose one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "ir/operators/quantizer.h"

namespace kvlift {

// The length of an axis: constant, B sequences, S new tokens, T = P+S keys, the S keys of the new
// tokens, M slots, P past tokens.
enum class Extent { kStatic, kBatch, kTokens, kKeys, kNewKeys, kSlots, kPast };

// The first free length (Axis::free_length) of a step that gives no other.
inline constexpr int64_t kFreeLength = 7;

struct Axis {
  Extent extent = Extent::kStatic;
  // The length of kStatic, the rows per sequence of kBatch, the slots of kSlots if they are
  // declared (0: the capacity); else unused.
  int64_t value = 1;
  bool settled = true;  // false: `value` is a guess
  // For kStatic: the name of a length that no step determines, for example how many tokens an
  // encoder read; "input[axis]" if the source gives it no name. Empty: the source declares the
  // number.
  std::string free_length = {};
  // For kBatch: the name that the source gives the length if it is not the batch's name anywhere
  // else, so that the model may take other lengths, too; else empty.
  std::string own_name = {};
};

enum class Meaning {
  kTokens,       // token ids: indices of a table's rows
  kPositions,    // P + i for new token i; P if there is no axis of tokens
  kLast,         // P + S - 1
  kTotal,        // P + S
  kNew,          // S
  kLastNew,      // S - 1, the index of the last new token
  kBeamIndices,  // beam indices: for each sequence, the index of the one whose past it takes over
  kFlag,         // P > 0
  kNoFlag,       // P == 0
  kMask,         // which keys a token sees
  kFixedMask,    // which of some other rows a token sees, such as those of an encoder
  kOnes,         // 1 everywhere, such as a mask that hides nothing
  kZeros,        // 0 everywhere
  kReal,         // real numbers that differ from token to token, such as embeddings
  kConstant,     // numbers that are the same in all steps
  kBounded,      // any integers between SourceInput::least and most
};

// How a mask marks a visible key: by 1 or true; by 0 or false; or as a number that is added to
// scores, 0 for a visible key and the lowest number of the type for a hidden one.
enum class Spelling { kOne, kZero, kAdded };

struct Reading {
  Meaning meaning = Meaning::kReal;
  Spelling spelling = Spelling::kOne;
  std::vector<Axis> axes;

  bool Has(Extent extent) const;
  bool IsAddedMask() const { return meaning == Meaning::kMask && spelling == Spelling::kAdded; }
};

struct SourceInput {
  int32_t type = 0;       // a TensorProto::DataType
  int64_t rows = 0;       // rows of the table that token ids index; 0: no table was found
  uint64_t salt = 0;      // makes the noise of different inputs differ
  bool compared = false;  // an integer or bool that the graph compares, in a mask perhaps
  bool position = false;  // determines where something is written, cut or hidden
  // The input holds positions that only encode where a token is, so that any numbers may be fed.
  bool free = false;
  // The operator that reads the input takes the length of the longest sequence of a batch, so that
  // sequences of different lengths share it.
  bool of_longest = false;
  int64_t least = 0, most = 0;    // bounds of kBounded, which the ledger of assumptions states
  std::vector<Reading> readings;  // at least one, the likeliest first
  size_t chosen = 0;              // index in `readings`

  const Reading& reading() const { return readings[chosen]; }
};

struct SourceInterface {
  std::map<std::string, SourceInput> inputs;        // all inputs but caches, by name
  std::map<std::string, std::vector<Axis>> caches;  // the axes of each cache, by input name
  // Caches of floating-point numbers, by input name, that hold fewer numbers than their type has:
  // those of a narrower type to which the source casts all of them, or those of a quantiser that
  // rounds the rows of the present.
  std::map<std::string, NumberSet> numbers_of_caches;
  // Caches of floating-point numbers, by input name, beside caches of whole numbers of 8 bits. They
  // may be the scales of these, and then rows are as large as those of other caches only if scales
  // are small.
  std::set<std::string> small_caches;
  std::optional<int64_t> fixed_batch, fixed_tokens;  // B and S if constant; nullopt: dynamic
};

// Reads the interface of the source. The converted model helps to find the table of token ids where
// the source's own graph does not show it. FailedPrecondition names an input that has no declared
// shape or a type that cannot be fed, or a dimension whose name stands for B and for a length.
absl::StatusOr<SourceInterface> ReadInterface(const Graph& source, const Graph& after,
                                              const Manifest& relation);

}  // namespace kvlift
