// What an input of a source model may mean, and how its shape is made.
//
// Read from declared shapes, from the caches of the relation, and from where the value flows to;
// names break ties only. Where several readings remain they are listed, the likeliest first: the
// source itself, run once, tells which is right.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

// B sequences, S new tokens, T = P+S keys, M slots, P past; or a size of its own.
enum class Extent { kStatic, kBatch, kTokens, kKeys, kSlots, kPast };

struct Axis {
  Extent extent = Extent::kStatic;
  int64_t value = 1;    // of kStatic; rows per sequence of kBatch
  bool settled = true;  // false: `value` is a guess
};

enum class Meaning {
  kTokens,     // rows of a table
  kPositions,  // P + token; P where there is no axis of tokens
  kLast,       // P + S - 1
  kTotal,      // P + S
  kNew,        // S
  kOrder,      // 0, 1, ... along the batch
  kFlag,       // P > 0
  kNoFlag,     // P == 0
  kMask,       // which keys a token sees
  kOnes,       // 1 everywhere: a mask that hides nothing
  kZeros,      // 0 everywhere
  kReal,       // numbers per token
  kConstant,   // numbers that stay the same in all steps
};

// How a mask says that a key is visible.
enum class Spelling { kOne, kZero, kAdded };  // 1 or true; 0 or false; 0 beside the lowest number

struct Reading {
  Meaning meaning = Meaning::kReal;
  Spelling spelling = Spelling::kOne;
  std::vector<Axis> axes;

  bool Has(Extent extent) const;
  bool IsAddedMask() const { return meaning == Meaning::kMask && spelling == Spelling::kAdded; }
};

struct SourceInput {
  int32_t type = 0;
  int64_t rows = 0;  // of the table that tokens index
  uint64_t salt = 0;
  bool compared = false;          // with something, in a mask perhaps
  bool position = false;          // says where something is written, cut or hidden
  bool free = false;              // of positions: nothing but the token's own number rests on them
  std::vector<Reading> readings;  // at least one
  size_t chosen = 0;

  const Reading& reading() const { return readings[chosen]; }
};

struct SourceInterface {
  std::map<std::string, SourceInput> inputs;        // that are no caches
  std::map<std::string, std::vector<Axis>> caches;  // by input
  std::optional<int64_t> fixed_batch, fixed_tokens;
};

// `after` helps where the source hides things in branches. FailedPrecondition names an input that
// cannot be fed.
absl::StatusOr<SourceInterface> ReadInterface(const Graph& source, const Graph& after,
                                              const Manifest& relation);

}  // namespace kvlift
