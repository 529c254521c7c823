// Runs a Program step by step. Caches live in the session: what a step leaves in a pair's output is
// the pair's input of the next step, in the same memory where that was proved safe. After warm-up
// a step of a shape seen before allocates nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "exec/program.h"
#include "exec/tensor.h"

namespace kvlift::exec {

using Feeds = absl::btree_map<std::string, Tensor>;
using Fetches = absl::btree_map<std::string, Tensor>;

// Bytes that a session holds, apart from the program's weights. `arena` is what the layout of the
// intermediate values needs, the largest so far; the parts are all there is.
struct MemoryUse {
  int64_t arena = 0;    // values whose size is known before a step runs
  int64_t indices = 0;  // values that shapes depend on
  int64_t slots = 0;    // values whose size is known only while a step runs
  int64_t outputs = 0;  // that are no caches
  int64_t caches = 0;

  int64_t total() const { return arena + indices + slots + outputs + caches; }
};

// Called after each node in schedule order; views are valid during the call only.
using Observer = std::function<void(NodeId node, absl::Span<const View> outputs)>;

class Session {
 public:
  explicit Session(std::shared_ptr<const Program> program);
  ~Session();
  Session(Session&&) noexcept;

  // Gives a cache its value (copied). NotFound if `input` is no pair's input.
  absl::Status SetCache(const std::string& input, const Tensor& value);
  // The cache's present value; may share memory with the session until the next step.
  absl::StatusOr<Tensor> Cache(const std::string& input) const;

  // One step. `feeds` holds every graph input that is not a cache (a fed cache replaces the
  // session's value). On return `fetches` holds every graph output, those of cache pairs if the
  // program was compiled to fetch them: they share memory with the session until the next step, all
  // others are the caller's.
  // InvalidArgument: missing, unknown or wrongly typed feeds, shapes that do not fit, an index out
  // of range (with node name). On error no cache has changed.
  absl::Status Step(const Feeds& feeds, Fetches* fetches);

  void set_observer(Observer observer);
  MemoryUse memory() const;
  // Bytes of caches that the last step copied: the past of those that it did not update in place.
  int64_t cache_bytes_copied() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvlift::exec
