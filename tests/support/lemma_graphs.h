// Small graphs that the oracle runs, and the fixture of tests that hold lemmas against it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace kvlift {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

struct Numbers {
  std::vector<int64_t> dims;
  std::vector<double> values;
};

using Inputs = std::map<std::string, Numbers>;

// Returns what the graph "name (inputs) => (float[...] y) {nodes}" of opset 24 gives; empty if it
// fails, which fails the test unless it `may_fail`.
std::vector<double> Result(const std::string& graph, const Inputs& inputs, bool may_fail = false);

// Returns how far roundings may move a result of the graph. The oracle does not round, but it
// bounds what rounding does.
double Bound(const std::string& graph, const Inputs& inputs);

// Returns true if both have elements, as many, and none differ by more than 1e-5 of their size.
bool AreNear(const std::vector<double>& a, const std::vector<double>& b);

// Returns normally distributed numbers with the standard deviation `scale`.
Numbers Random(std::vector<int64_t> dims, std::mt19937& rng, double scale = 1);

// The name and the first inputs of the graphs below: q [1, 2, 3, 4], k and v [1, 2, 5, 4].
inline constexpr char kHead[] = "g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v, ";

// Returns softmax(s + bias) v, written out, with s made of the product of queries and keys, and w
// of p, the probabilities.
std::string WrittenOut(const std::string& weights = "w = Identity(p)",
                       const std::string& scores = "t = Mul(s, half)\n b = Add(t, bias)");

// Returns an Attention with a mask of the type, such as "bool[1,1,3,5]".
std::string Operator(const std::string& mask_type, const std::string& attributes = "");

class Lemmas : public testing::Test {
 protected:
  void SetUp() override {
    inputs_["q"] = Random({1, 2, 3, 4}, rng_);
    inputs_["k"] = Random({1, 2, 5, 4}, rng_);
    inputs_["v"] = Random({1, 2, 5, 4}, rng_);
  }

  // A row sees keys [0, seen[row]); others get `number`.
  void SetMask(const std::vector<int>& seen, double number) {
    Numbers bias{{1, 1, 3, 5}, {}}, mask{{1, 1, 3, 5}, {}};
    for (int row = 0; row < 3; ++row) {
      for (int key = 0; key < 5; ++key) {
        bias.values.push_back(key < seen[row] ? 0 : number);
        mask.values.push_back(key < seen[row] ? 1 : 0);
      }
    }
    inputs_["bias"] = bias;
    inputs_["mask"] = mask;
  }

  std::mt19937 rng_{7};
  Inputs inputs_;
};

}  // namespace kvlift
