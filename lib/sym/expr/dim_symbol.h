// The name of a dimension symbol: a dim_param that a model declares, or a name that the program
// made.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>

namespace kvlift::sym {

// Two symbols are equal if both are declared, or both internal, and their names are equal. A name
// in a model therefore never collides with an internal one.
class DimSymbol {
 public:
  DimSymbol() = default;
  // Returns the symbol of a dim_param of the model.
  static DimSymbol Declared(std::string_view name) { return {false, name}; }
  // Returns a symbol of the program's own.
  static DimSymbol Internal(std::string_view name) { return {true, name}; }

  const std::string& name() const { return name_; }
  bool is_internal() const { return internal_; }

  friend bool operator==(const DimSymbol&, const DimSymbol&) = default;
  friend std::strong_ordering operator<=>(const DimSymbol& a, const DimSymbol& b) {
    if (a.internal_ != b.internal_) return a.internal_ <=> b.internal_;
    return a.name_.compare(b.name_) <=> 0;
  }
  template <typename H>
  friend H AbslHashValue(H h, const DimSymbol& s) {
    return H::combine(std::move(h), s.internal_, s.name_);
  }

 private:
  DimSymbol(bool internal, std::string_view name) : internal_(internal), name_(name) {}

  bool internal_ = false;
  std::string name_;
};

}  // namespace kvlift::sym
