// Assumptions about the layer that stands for others (proof/folding.h), said of these others too.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "contract/assumptions.h"

namespace kvlift {

class LayerNames {
 public:
  // Says that what is called `name` in layer 0, a value or a cache, is called others[k] in layer
  // k + 1. False if the name already stands for other ones.
  bool Add(const std::string& name, std::vector<std::string> others);

  // The number of layers besides layer 0.
  size_t size() const { return size_; }
  // Whether the assumption speaks of layer 0.
  bool SpeaksOfLayer(const Assumption& assumption) const;
  // The assumption as it is said of layer k, from 0 up to size().
  Assumption InLayer(const Assumption& assumption, size_t k) const;
  // An assumption that speaks of layer 0 for each of the first `count` layers, others as they are.
  void AddForFirst(size_t count, const Assumption& assumption, Assumptions* all) const;

 private:
  std::string Renamed(const std::string& text, size_t k) const;

  absl::flat_hash_map<std::string, std::vector<std::string>> others_;
  size_t longest_ = 0;  // name, in bytes
  size_t size_ = 0;
};

}  // namespace kvlift
