// Lemma mask-split. Where m(s, t) is 0 or -inf, and visible(s, t) says that it is 0,
//
//   softmax(x + m)[s] = softmax over the keys t with visible(s, t) of x[s]
//
// A sum of masks hides what any of them hides. So a mask is the causal order, the valid length and
// the rest of an Attention-24 together:
//
//   visible(b, h, s, t) = t < n[b]  and  t <= s + offset  and  mask(b, h, s, t)
//
// with offset = n[b] - S where valid lengths n are given, and the length of the operator's own past
// otherwise. Side conditions: what is added is plainly 0 where it does not hide, or it is a bias as
// well; nothing behind the mask scales, caps or turns the sums: -inf times a negative number shows
// the key, and tanh(-inf) is -1; the offset is the operator's; where a mask that is added takes the
// place of one that is selected, x is finite where it is hidden (scale_moved.h). Source: ONNX's
// texts of Softmax and of Attention-24, is_causal and nonpad_kv_seqlen.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "proof/grounds.h"
#include "sym/forms.h"

namespace kvlift {

// Where an element that is added to a score, or stands in its place, hides the key.
struct Hiding {
  sym::Expr where = nullptr;
  std::set<double> numbers;  // the finite ones that hide (finite_minimum.h)

  bool everywhere() const { return where->is_integer(1); }
};

// Where an element hides the key; nullopt if it is not plain that it is 0 elsewhere. factor: what
// the sum of score and element is multiplied by.
std::optional<Hiding> HiddenBy(sym::Pool& pool, sym::Expr e, double factor = 1);

// What is added to scores: where it hides the key, and the summands that it is elsewhere.
struct MaskAndBias {
  Hiding hiding;
  std::vector<sym::Expr> bias;
};

// What an element adds to scores; nullopt if it is not read.
std::optional<MaskAndBias> SplitMask(sym::Forms& forms, sym::Expr e, const sym::Facts& facts,
                                     Grounds* grounds);

// What an Attention-24 hides by its attributes and lengths, as it is visible at i0..i3.
struct OperatorOrder {
  bool causal = false;
  sym::Expr valid = nullptr;    // n[i0]; null if it is not told
  sym::Expr queries = nullptr;  // S
  sym::Expr past = nullptr;     // the length of its own past
};
sym::Expr VisibleIn(sym::Pool& pool, const OperatorOrder& order, const sym::Facts& facts);

}  // namespace kvlift
