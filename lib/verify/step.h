// One call of a model.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace kvlift {

// Letters: B sequences, each with its own past length P, S new tokens.
struct StepSpec {
  int number = 0;             // within its plan: seeds the tokens
  int64_t first_token = 0;    // does, too: of the tokens of that number, the first of this step
  std::vector<int64_t> past;  // P per sequence
  int64_t new_tokens = 1;     // S
  std::vector<int64_t> real;  // new tokens that are no right pads, per sequence; empty: all
  std::vector<int64_t> pads;  // left pads per sequence; empty: none
  // Keys [first, second) that the mask hides, per sequence; empty: none.
  std::vector<std::pair<int64_t, int64_t>> hidden;
  std::vector<int> sequences;  // their numbers, which seed the tokens
  // The place in the batch of which each one goes on; empty: of its own. Only where an input of the
  // source says it, as in a search that drops some sequences for others.
  std::vector<int> order;

  // Per new token, the number that seeds it, and its place behind the past; empty: 0, 1, ...
  std::vector<int64_t> chosen, places;
  // Tokens of a tree: the parent of each new token, -1 for a root; empty: each one's is the one
  // before.
  std::vector<int> parents;
  int64_t reach = 0;        // above 0: positions that only say where a token is are any below it
  bool free_masks = false;  // masks hold any pattern, and any numbers where they are added

  int64_t batch() const { return static_cast<int64_t>(past.size()); }
  int64_t real_of(int64_t b) const { return real.empty() ? new_tokens : real[b]; }
  int64_t longest() const;
  // Sequences differ in their past or in their number of real tokens.
  bool ragged() const;
  StepSpec Alone(int b) const;  // sequence b only, without right pads
};

}  // namespace kvlift
