// The buffer that a recognised cache becomes in the result. Internal to lib/rewrite.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rewrite/plan/placement.h"
#include "rewrite/recognise/analysis.h"
#include "rewrite/types/resolved_options.h"

namespace kvlift {

// Rows are in consecutive slots, in their order, and no write wraps around. Row t is in slot t: of
// a growing cache the row of token t, of a buffer the source's row t.
struct LinearBuffer {
  friend bool operator==(const LinearBuffer&, const LinearBuffer&) = default;
};

// A growing cache becomes a ring of C slots, C >= window + S: token t is in slot t mod C.
struct WindowRing {
  int64_t window = 0;  // rows that attention reads besides the new ones, 1 or more

  friend bool operator==(const WindowRing&, const WindowRing&) = default;
};

// Rows are in the slots of the source's own buffer, in which they wrap around.
struct SourceRing {
  friend bool operator==(const SourceRing&, const SourceRing&) = default;
};

// The rows of a Fifo of M slots stay where they are: row t of the source's present is in slot
// (t + P + S) mod M.
struct FifoRing {
  friend bool operator==(const FifoRing&, const FifoRing&) = default;
};

// An update with the buffer that holds its rows in the result, and the layout of that buffer. Only
// PlanBuffers makes them: growing caches are linear or in a WindowRing, and of the others each kind
// has one buffer.
struct PlannedCache : CacheUpdate {
  using Buffer = std::variant<LinearBuffer, WindowRing, SourceRing, FifoRing>;

  PlannedCache(const CacheUpdate& recognised, Buffer planned, Placement placed)
      : CacheUpdate(recognised), buffer(planned), placement(std::move(placed)) {}

  Buffer buffer;
  Placement placement;

  bool linear() const { return std::holds_alternative<LinearBuffer>(buffer); }
  const WindowRing* ring() const { return std::get_if<WindowRing>(&buffer); }
  bool fifo() const { return std::holds_alternative<FifoRing>(buffer); }
  // Returns true if rows are in other slots than the source has them in.
  bool moves_rows() const;
  // Returns words that end a text about the cache, such as ", in which rows wrap around"; empty for
  // a LinearBuffer.
  std::string buffer_words() const;
};

// Decides for each of Analysis::updates, in their order, what holds its rows. With
// WindowForm::kCircular caches that keep a window become rings, and caches that keep all rows do if
// every attention over them hides, from each query, the tokens that are more than a constant number
// back, and adds no bias. Caches with reordered sequences, or with the sequence axis first, do not.
std::vector<PlannedCache> PlanBuffers(const Analysis& analysis, const ResolvedOptions& options);

}  // namespace kvlift
