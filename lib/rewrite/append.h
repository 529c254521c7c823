// Reads what a present says about its past: rows behind it, or rows written into it.
#pragma once

#include <optional>

#include "rewrite/rule.h"
#include "sym/forms.h"

namespace kvlift {

// past[.., t, ..] for t < length, something else behind.
struct Append {
  int axis = -1;
  sym::Expr length = nullptr;  // where the rest begins: P
  sym::Expr update = nullptr;  // element of the rest, with i_axis counted from 0
  sym::Expr base = nullptr;    // set where rows of other sequences are taken: past[x[b], .., t, ..]
  // The rest is the past and the new rows stand in front of it.
  bool reversed = false;
};

// nullopt if the form of `v` is nothing of that kind. v has the past's rank.
std::optional<Append> ReadAppend(sym::Forms& forms, ValueId past, ValueId v);

// update at slots start <= t < start + length, the past elsewhere.
struct Write {
  int axis = -1;
  sym::Expr start = nullptr;
  sym::Expr length = nullptr;
  sym::Expr update = nullptr;  // with i_axis counted from start
  // Only a part of the other axes is written, such as the first sequences of a larger batch: the
  // update then holds the past's own rows for the rest.
  bool part = false;
};

// nullopt if the form of `present`, of the past's shape, is nothing of that kind.
std::optional<Write> ReadWrite(sym::Forms& forms, const CachePair& pair);
// update at slots (start + s) mod M for s < length, the past elsewhere.
std::optional<Write> ReadRing(sym::Forms& forms, const CachePair& pair);
// past[.., t + length, ..] for t < M - length, the update behind. start stays null.
std::optional<Write> ReadShift(sym::Forms& forms, const CachePair& pair);

// What a rule says of a buffer of fixed capacity that is written so; nullopt if its axes cannot be
// told.
std::optional<CacheUpdate> BufferUpdate(sym::Forms& forms, const CachePair& pair,
                                        const Write& write);

}  // namespace kvlift
