// Makes a subject smaller as long as it shows what is to be kept: delta debugging over its outputs,
// nodes, inputs and weights. Nothing here knows what is to be kept, and nothing is run.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "reduce/shared_values.h"
#include "reduce/subject.h"

namespace kvlift {

// Decides whether candidates show what is to be kept.
class Trials {
 public:
  struct Found {
    size_t index = 0;
    Subject subject;
  };
  // Returns the candidate of an index; nullopt if there is no valid one.
  using Make = std::function<std::optional<Subject>(size_t index)>;

  virtual ~Trials() = default;
  // Returns the first of `count` candidates that shows what is to be kept, even if several are
  // tried at once; nullopt if none does, or if the trials are over before one is found.
  virtual std::optional<Found> FindFirst(size_t count, const Make& make) = 0;
  // Returns true if no more trials are wanted.
  virtual bool over() const = 0;
};

struct ReduceOptions {
  TypesFrom types = TypesFrom::kForms;
  // Called after each step that made the subject smaller. what: the kind of elements that were
  // removed, such as "nodes". May be null.
  std::function<void(std::string_view what, const Subject& now)> say = nullptr;
};

// Returns the smallest subject that was found; `subject` itself shows what is to be kept.
// Candidates that ONNX's checker, strict shape inference or the check of the relation refuses are
// not tried, unless they refuse `subject` as well. The result depends only on the answers of the
// trials. Errors are those of Graph::Build for `subject`.
absl::StatusOr<Subject> Reduce(Subject subject, Trials* trials, const ReduceOptions& options = {});

}  // namespace kvlift
