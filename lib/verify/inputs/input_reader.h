// Finds the possible meanings of the inputs of a source: the class behind ReadInterface. Internal
// to lib/verify/inputs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "verify/inputs/input_meanings.h"
#include "verify/inputs/input_uses.h"

namespace kvlift::internal {

// Reads caches and the names of sizes first, and then each input with all its possible meanings.
class InputReader {
 public:
  InputReader(const Graph& source, const Graph& after, const Manifest& relation)
      : graph_(source), relation_(relation), uses_(source.model()), after_uses_(after.model()) {}

  absl::StatusOr<SourceInterface> Run();

 private:
  using Dims = std::vector<Dim>;

  const Dims* ShapeOf(const std::string& name) const;
  absl::Status CheckSymbols() const;
  static std::string LettersOf(const SourceCache& cache, size_t rank);
  void ReadRelation();
  void ReadAll(const std::string& name, std::optional<AllElements> all);
  InputUses::Table TableOf(const std::string& name) const;
  static bool NamedPosition(const std::string& name);
  bool SaysNoTokens(const std::string& name) const;
  void FindTokens();
  void FindTokenIds(bool any);
  void FindHiddenTokens(bool floats);
  void FindNewRows();
  void ReadTokenShape(const Dims& dims);
  void FindFreeNames();
  bool IsNameOfStep(const std::string& name) const;
  bool BatchIs(const ManifestCache& cache, const Dim& dim) const;
  std::optional<int64_t> SizeOfPresent(const ManifestCache& cache, size_t axis, size_t rank) const;
  void ReadCache(const ManifestCache& cache);
  std::vector<Axis> AxisOptions(const std::string& name, const Dims& dims, size_t k, bool whole,
                                bool mask) const;
  std::vector<Axis> StaticOptions(int64_t value, const Dims& dims, size_t k, bool whole,
                                  bool mask) const;
  bool IsNewRows(const Dims& dims, size_t k) const;
  absl::Status AddInput(ValueId v);
  void AddTokens(const Dims& dims, SourceInput* input) const;
  void AddReadings(const std::string& name, const Dims& dims, bool whole, SourceInput* input);
  bool LooksWide(const std::string& name, const Dims& dims) const;
  void AddMeanings(const std::string& name, bool whole, Reading reading, SourceInput* input) const;
  template <typename Add>
  void AddLengths(const std::string& name, const Add& add) const;

  const Graph& graph_;
  const Manifest& relation_;
  const InputUses uses_, after_uses_;
  bool growing_ = false;
  std::set<std::string> batch_, past_, tokens_, slots_, cache_inputs_, positions_;
  std::map<std::string, Meaning> all_;  // inputs that are all ones or all zeros
  std::set<int64_t> slots_values_;      // the numbers of slots that caches declare
  std::set<std::string> free_;          // names of lengths that no step determines
  std::map<std::string, int> wide_;
  std::map<std::string, std::string> kept_;
  std::string tokens_input_;
  int64_t table_rows_ = 0;
  SourceInterface out_;
};

}  // namespace kvlift::internal
