// Renames assumptions about layer 0, which is proved for all equal layers (proof/prove/folding.h),
// so that they speak of the other layers.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "contract/assumptions.h"

namespace kvlift {

class LayerNames {
 public:
  // Says that the value or cache `name` of layer 0 is called others[k] in layer k + 1. Returns
  // false if the name was added with other names before.
  bool Add(const std::string& name, std::vector<std::string> others);

  // The number of layers besides layer 0; 0 before the first Add.
  size_t size() const { return size_; }
  // Returns true if the assumption names something of layer 0.
  bool SpeaksOfLayer(const Assumption& assumption) const;
  // Returns the assumption about layer k, 0 <= k <= size().
  Assumption InLayer(const Assumption& assumption, size_t k) const;
  // Adds the assumption for each of the first `count` layers if it names something of layer 0, and
  // once otherwise.
  void AddForFirst(size_t count, const Assumption& assumption, Assumptions* all) const;

 private:
  std::string Renamed(const std::string& text, size_t k) const;

  absl::flat_hash_map<std::string, std::vector<std::string>> others_;
  size_t longest_ = 0;  // the length of the longest name in bytes
  size_t size_ = 0;
};

}  // namespace kvlift
