// Holds the entries of the ledger of assumptions about the numbers and sizes that a host feeds the
// source, as data, so that a caller who feeds the source can test whether a step keeps to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvlift {

// An axis of a graph input of the source.
struct InputAxis {
  std::string input;
  int axis = 0;

  friend bool operator==(const InputAxis&, const InputAxis&) = default;
};

// An integer that the inputs of the source determine. Predicates are the integers 0 and 1.
struct FedNumber {
  enum class Kind {
    kInteger,   // value
    kIndex,     // the index i_value
    kSize,      // the size of axis `value` of `input`
    kElement,   // the element of `input` at args
    kSum,       // of args
    kProduct,   // of args
    kFloorDiv,  // args[0] / args[1], rounded down
    kIsAtMost,  // args[0] <= 0
    kIsZero,    // args[0] == 0
    kNot,       // of args[0]
    kAnd,       // of args
    kSelect,    // args[0] ? args[1] : args[2]
  };
  Kind kind = Kind::kInteger;
  int64_t value = 0;
  std::string input = {};
  std::vector<FedNumber> args = {};
};

// A predicate that holds for all indices at which the elements exist that it reads.
struct FedCondition {
  FedNumber holds;
  std::string text;               // the entry of the ledger
  std::optional<bool> with_past;  // only of steps with a past, or without; nullopt: of all
};

// The integers and sizes of one step of the source.
class FedInputs {
 public:
  virtual ~FedInputs() = default;
  // Returns the shape of an input; null if the step feeds no such input.
  virtual const std::vector<int64_t>* ShapeOf(const std::string& input) const = 0;
  // Returns an element of an input of integers or bools, by its place in row-major order.
  virtual int64_t ElementOf(const std::string& input, int64_t place) const = 0;
  // Returns true if some sequence of the step has a past.
  virtual bool HasPast() const = 0;
};

struct FedRules {
  std::vector<FedCondition> conditions;
  // Axes that have one size in a step of several sequences and in the steps of each alone.
  std::vector<InputAxis> common;

  // Adds the rules of `others` that are not there yet.
  void Add(const FedRules& others);
  // Returns the text of the first condition that does not hold; empty if none is seen to fail.
  // Conditions with very many indices are not tried.
  std::string Broken(const FedInputs& inputs) const;
  bool IsCommon(const std::string& input, int axis) const;
  // The least and the largest number that the conditions allow an element of an input, whichever
  // it is; nullopt where they state none.
  struct Bounds {
    std::optional<int64_t> least, most;
  };
  Bounds BoundsOf(const std::string& input) const;
};

}  // namespace kvlift
