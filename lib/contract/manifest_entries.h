// The inputs and outputs of a converted model in its manifest: one struct for each way in which an
// input or output corresponds to the source, with the fields that this way has.
// Example: {"mask", PaddedInput{1, 0, ""}, AllElements::kOnes}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "contract/kinds.h"

namespace kvlift {

// The host feeds to this input what it fed to the source's input of the same name.
struct SameInput {
  static constexpr InputAs kAs = InputAs::kSame;
};

// The source has no such input. The host feeds `value`.
struct ControlInput {
  static constexpr InputAs kAs = InputAs::kControl;
  ControlValue value = ControlValue::kPastLength;
  std::string dtype = "int64";             // element type
  std::vector<std::string> shape = {"B"};  // names of dimensions: "B", "S", "1", ...
};

// The past of the manifest's cache with this id.
struct CacheInput {
  static constexpr InputAs kAs = InputAs::kCache;
  std::string id;
};

// The host extends the source's input along `axis` to the capacity M with elements equal to `fill`.
struct PaddedInput {
  static constexpr InputAs kAs = InputAs::kPadToCapacity;
  int64_t axis = 0;
  int64_t fill = 0;
  std::string source = {};  // name in the source; empty: the same name
};

// The host feeds to this input what it fed to the source's input `source`.
struct RenamedInput {
  static constexpr InputAs kAs = InputAs::kRenamed;
  std::string source;
};

struct ManifestInput {
  std::string name;
  std::variant<SameInput, ControlInput, CacheInput, PaddedInput, RenamedInput> as = {};
  // The number that all elements must be, where the conversion relies on it; absent: no
  // requirement. JSON key "requires".
  std::optional<AllElements> all = std::nullopt;
};

// The output equals the source's output of the same name.
struct SameOutput {
  static constexpr OutputAs kAs = OutputAs::kSame;
};

// The present of the manifest's cache with this id.
struct CacheOutput {
  static constexpr OutputAs kAs = OutputAs::kCache;
  std::string id;
};

// The output equals the source's output `source`.
struct RenamedOutput {
  static constexpr OutputAs kAs = OutputAs::kRenamed;
  std::string source;
};

struct ManifestOutput {
  std::string name;
  std::variant<SameOutput, CacheOutput, RenamedOutput> as = {};
};

// An input of the source that the converted model does not have.
struct DroppedInput {
  std::string name;
  // The value that the source is fed at this input when both models are compared. A string
  // describes, for people, a value that has no enumerator. JSON key "requires".
  std::variant<AllElements, DroppedValue, std::string> given;
};

InputAs AsOf(const ManifestInput& input);
OutputAs AsOf(const ManifestOutput& output);

// Return the alternative that an input is; null if it is another one.
const ControlInput* AsControl(const ManifestInput& input);
const CacheInput* AsCache(const ManifestInput& input);
const PaddedInput* AsPadded(const ManifestInput& input);
const CacheOutput* AsCache(const ManifestOutput& output);

bool IsCache(const ManifestInput& input);
bool IsCache(const ManifestOutput& output);
// Returns true if the source has a corresponding input: this one is neither a control nor a cache.
bool HasSourceInput(const ManifestInput& input);
// Returns true if both models are fed the same tensor here: the input is the same, or renamed.
bool IsFedToBoth(const ManifestInput& input);
// Returns true if the input is a control with this value.
bool IsControl(const ManifestInput& input, ControlValue value);

// Returns the name in the source of an input or output. For controls and caches, which have none
// here, returns their name in the converted model.
const std::string& NameInSource(const ManifestInput& input);
const std::string& NameInSource(const ManifestOutput& output);

// Returns the number that all elements of a dropped input are; nullopt if it is fed anything else.
std::optional<AllElements> AllOf(const DroppedInput& dropped);
// Returns true if the source is fed this value at a dropped input.
bool IsGiven(const DroppedInput& dropped, DroppedValue value);
// Returns the text of the JSON key "requires" of a dropped input.
std::string GivenText(const DroppedInput& dropped);
// Returns a dropped input whose `given` is what the text says: the enumerator whose word the text
// is, else the text itself, as words for people.
DroppedInput MakeDropped(std::string name, std::string text);

}  // namespace kvlift
