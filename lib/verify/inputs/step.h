// The sizes and kinds of tokens of one step, that is one run of a model.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace kvlift {

// Letters: B sequences, each with its own past length P, and S new tokens. Vectors have one element
// per sequence unless a comment says otherwise.
struct StepSpec {
  int number = 0;             // index in the plan; seeds the tokens
  int64_t first_token = 0;    // offset of this step in the tokens of that seed
  std::vector<int64_t> past;  // P; never empty
  int64_t new_tokens = 1;     // S, right padding included
  std::vector<int64_t> real;  // new tokens without right padding; empty: S of each sequence
  std::vector<int64_t> pads;  // left padding tokens, counted from key 0; empty: no padding
  // Keys [first, second) that the mask hides; empty: it hides no others.
  std::vector<std::pair<int64_t, int64_t>> hidden;
  std::vector<int> sequences;  // numbers of the sequences, which seed the tokens
  // For each sequence, the index in the batch of the sequence whose past it takes over, as in beam
  // search; empty: its own. Only for a source with an input that reorders its past.
  std::vector<int> order;

  // One element per new token: the number that seeds it, and its position counted from P; empty: 0,
  // 1, ...
  std::vector<int64_t> chosen, places;
  // One element per new token of a tree (speculative decoding): the index of its parent, -1 for a
  // root; empty: the new tokens are a sequence.
  std::vector<int> parents;
  int64_t reach = 0;        // above 0: free positions (SourceInput::free) are any numbers below it
  bool free_masks = false;  // masks hide any keys, and added masks hold any numbers
  // Above 0: the first of the free lengths (Axis::free_length); the others follow it.
  int64_t free_length = 0;
  int draw = 0;  // seeds the real numbers that are the same in all steps of a plan

  int64_t batch() const { return static_cast<int64_t>(past.size()); }
  int64_t real_of(int64_t b) const { return real.empty() ? new_tokens : real[b]; }
  int64_t longest() const;  // the largest P
  // Returns true if sequences differ in their past length or in their number of real new tokens, or
  // have right padding.
  bool ragged() const;
  // Returns the step of sequence b alone, without right padding and without reordering.
  StepSpec Alone(int b) const;
};

// Returns a step of the sequences 0, 1, ..., which all have the same past length.
StepSpec EvenStep(int64_t batch, int64_t past, int64_t tokens);

}  // namespace kvlift
