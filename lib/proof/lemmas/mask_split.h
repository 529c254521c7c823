// Lemma mask-split. If m(s, t) is 0 or -inf, and visible(s, t) means that it is 0,
//
//   softmax(x + m)[s] = softmax over the keys t with visible(s, t) of x[s]
//
// A sum of masks hides what any of them hides. So a mask equals the causal order, the valid lengths
// and the remaining mask of an Attention-24 together:
//
//   visible(b, h, s, t) = t < n[b]  and  t <= s + offset  and  mask(b, h, s, t)
//
// with offset = n[b] - S if valid lengths n are given, and the length of the operator's own past
// otherwise. Side conditions: what is added is known to be 0 where it does not hide, or is treated
// as a bias as well; nothing follows a mask but positive factors, which also multiply m, and not
// even these follow a bias, because a softcap makes -inf finite and a negative factor makes it
// +inf; the offset is the operator's; and where an added mask replaces a selected one, x is finite
// at hidden keys (scale_moved.h). Source: ONNX Softmax and Attention-24, is_causal and
// nonpad_kv_seqlen.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "proof/graphs/grounds.h"
#include "sym/forms/forms.h"

namespace kvlift {

// The condition under which an element that is added to a score, or replaces it, hides the key.
struct Hiding {
  sym::Expr where = nullptr;
  std::set<double> numbers;  // the finite numbers that hide (finite_minimum.h)

  bool everywhere() const { return where->is_integer(1); }
};

// Reads when e hides the key; nullopt if e is not known to be 0 elsewhere. `factor` is a later
// factor of the sum of score and e.
std::optional<Hiding> HiddenBy(sym::Pool& pool, sym::Expr e, double factor = 1);

// The summands of a score: the condition under which they hide the key, and their values elsewhere.
struct MaskAndBias {
  Hiding hiding;
  std::vector<sym::Expr> bias;
};

// Reads what an element e adds to scores; nullopt if it is not understood. Adds what this rests on
// to `grounds`.
std::optional<MaskAndBias> SplitMask(sym::Forms& forms, sym::Expr e, const sym::Facts& facts,
                                     Grounds* grounds);

// The attributes and valid lengths by which an Attention-24 hides keys. VisibleIn() returns the
// predicate over i0..i3.
struct OperatorOrder {
  bool causal = false;
  sym::Expr valid = nullptr;    // n[i0]; null if no valid lengths are given
  sym::Expr queries = nullptr;  // S
  sym::Expr past = nullptr;     // the length of the operator's own past
};
sym::Expr VisibleIn(sym::Pool& pool, const OperatorOrder& order, const sym::Facts& facts);

}  // namespace kvlift
