// Runs a Program step by step. Caches live in the session: the value of a pair's output becomes the
// pair's input of the next step, in the same memory where that was proved safe. A step whose shapes
// have occurred before allocates nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "exec/memory/tensor.h"
#include "exec/session/program.h"

namespace kvlift::exec {

using Feeds = absl::btree_map<std::string, Tensor>;
using Fetches = absl::btree_map<std::string, Tensor>;

// Bytes that a session holds, without the program's weights. The five parts are disjoint and
// complete.
struct MemoryUse {
  int64_t arena = 0;    // largest arena so far: values whose size is known before a step runs
  int64_t indices = 0;  // values that shapes depend on
  int64_t slots = 0;    // values whose size is known only while a step runs
  int64_t outputs = 0;  // graph outputs that are not caches
  // The two buffers of each cache pair.
  int64_t caches = 0;

  int64_t total() const { return arena + indices + slots + outputs + caches; }
};

// Called after each node, in schedule order. The views are valid during the call only.
using Observer = std::function<void(NodeId node, absl::Span<const View> outputs)>;

class Session {
 public:
  explicit Session(std::shared_ptr<const Program> program);
  ~Session();
  Session(Session&&) noexcept;

  // Gives a cache its value, as a copy. NotFound if `input` is not the input of a cache pair;
  // InvalidArgument if type or shape contradict the declaration.
  absl::Status SetCache(const std::string& input, const Tensor& value);
  // Returns the current value of a cache; it may share memory with the session until the next step.
  // NotFound as for SetCache; FailedPrecondition if the cache has no value yet.
  absl::StatusOr<Tensor> Cache(const std::string& input) const;

  // Runs one step. `feeds` holds every graph input that is not a cache; a cache that is fed as well
  // takes that value. On return `fetches` holds every graph output, and those of cache pairs only
  // if CompileOptions::fetch_caches. Fetched caches share memory with the session until the next
  // step, all other tensors belong to the caller.
  //
  // Returns InvalidArgument for feeds that are missing, unknown or of a wrong type or shape, for
  // caches without value, and for errors of a node (with its name), such as an index out of range.
  // Returns OutOfRange and ResourceExhausted for exceeded limits (budget.h), FailedPrecondition if
  // guard mode finds a node that reads a past too late. After an error no cache has changed.
  absl::Status Step(const Feeds& feeds, Fetches* fetches);

  void set_observer(Observer observer);
  MemoryUse memory() const;
  // Returns the bytes of cache values that the last step copied because they are not updated in
  // place.
  int64_t cache_bytes_copied() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvlift::exec
