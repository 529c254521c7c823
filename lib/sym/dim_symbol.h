// The name of a dimension symbol: one that a model declares, or one that the program made.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <utility>

namespace kvlift::sym {

// Two symbols are equal only if both are declared, or both internal, and have the same name: no
// name that a model chooses meets one of ours.
class DimSymbol {
 public:
  DimSymbol() = default;
  // The symbol that a dim_param of a model names.
  static DimSymbol Declared(std::string_view name) { return {false, name}; }
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
