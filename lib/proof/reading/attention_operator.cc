// The part of AttentionReader that reads an Attention operator.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "proof/lemmas/heads_regrouped.h"
#include "proof/lemmas/mask_split.h"
#include "proof/lemmas/names.h"
#include "proof/lemmas/scale_moved.h"
#include "proof/lemmas/sink_key.h"
#include "proof/reading/attention_reader.h"

namespace kvlift::internal {

using onnx::TensorProto;
using sym::Expr;
using sym::Facts;
using sym::Kind;

ValueId AttentionReader::Input(NodeId node, size_t k) const {
  return k < graph_.inputs(node).size() ? graph_.inputs(node)[k] : kNoValue;
}

std::optional<AttentionReader::OperandShape> AttentionReader::ByHeads(ValueId v, int64_t heads) {
  const sym::Form form = forms_.Of(v);
  if (!form.known_rank) return std::nullopt;
  if (form.shape.size() == 4) {
    if (heads != 0 && !form.shape[1]->is_integer(heads)) return std::nullopt;
    return OperandShape{form.shape, false};
  }
  const Expr all = form.shape.size() == 3 ? form.shape[2] : nullptr;
  if (all == nullptr || all->kind() != Kind::kInteger || heads < 1 || all->value() % heads != 0) {
    return std::nullopt;
  }
  return OperandShape{
      {form.shape[0], pool_.Integer(heads), form.shape[1], pool_.Integer(all->value() / heads)},
      true};
}

Expr AttentionReader::Element(ValueId v, absl::Span<const Expr> at, const OperandShape& form) {
  if (!form.joined) return At(v, at);
  return At(v, {at[0], at[2], pool_.Add(pool_.Mul(at[1], form.shape[3]), at[3])});
}

bool AttentionReader::HasKnownAttributes(NodeId node) const {
  static const auto& kKnown = *new absl::flat_hash_set<std::string_view>{
      "is_causal", "kv_num_heads", "q_num_heads",      "qk_matmul_output_mode",
      "scale",     "softcap",      "softmax_precision"};
  const auto& attributes = graph_.node(node).attribute();
  return std::all_of(attributes.begin(), attributes.end(),
                     [](const auto& a) { return kKnown.contains(a.name()); });
}

bool AttentionReader::ReadOperator(NodeId node) {
  r_.is_operator = true;
  if (!HasKnownAttributes(node)) return Fail("it has an attribute that is not read");
  const int64_t q_heads = IntAttribute(graph_.node(node), "q_num_heads", 0);
  const int64_t k_heads = IntAttribute(graph_.node(node), "kv_num_heads", 0);
  const auto q_form = ByHeads(Input(node, 0), q_heads), k_form = ByHeads(Input(node, 1), k_heads),
             v_form = ByHeads(Input(node, 2), k_heads);
  if (!q_form || !k_form || !v_form || q_form->joined != k_form->joined ||
      q_form->joined != v_form->joined) {
    return Fail("its operands have no heads that are seen");
  }
  r_.joined = q_form->joined;
  const OperandShape &q = *q_form, &k = *k_form, &v = *v_form;
  const Expr heads = q.shape[1], kv_heads = k.shape[1];
  if (heads->kind() != Kind::kInteger || kv_heads->kind() != Kind::kInteger ||
      q.shape[3]->kind() != Kind::kInteger) {
    return Fail("its numbers of heads are not constant");
  }
  const Expr more = pool_.Sub(k.shape[2], v.shape[2]);
  if (more->kind() == Kind::kInteger && !more->is_integer(0)) {
    return Fail("its keys and values are not of one length");
  }
  const auto group = GroupSize(heads->value(), kv_heads->value());
  if (!group) return Fail("its heads do not fit each other");
  const Expr past = PastOf(node);
  if (past == nullptr) return Fail("it keeps a past that is not read");
  r_.equal_extents = {{k.shape[0], q.shape[0]},
                      {v.shape[0], q.shape[0]},
                      {v.shape[1], kv_heads},
                      {k.shape[2], v.shape[2]},
                      {k.shape[3], q.shape[3]}};
  if (heads != kv_heads) r_.grounds.AddLemma(lemmas::kHeadsRegrouped);
  r_.extents.extents = {q.shape[0], heads, q.shape[2], pool_.Add(past, k.shape[2]), q.shape[3]};
  r_.size_of_value = v.shape[3];
  const Expr b = pool_.Index(0), h = pool_.Index(1), s = pool_.Index(2), t = pool_.Index(3),
             d = pool_.Index(4);
  const Expr hk = pool_.FloorDiv(h, pool_.Integer(*group), r_.extents);
  r_.query = Element(Input(node, 0), {b, h, s, d}, q);
  if (HasSinkKey(node, hk, k, v)) {
    r_.extents.extents[3] = pool_.Sub(r_.extents.extents[3], pool_.Integer(1));
  }
  r_.key = BehindPast(Input(node, 4), Input(node, 1), past, {b, hk, t, d}, k);
  Facts facts = r_.extents;
  r_.extents.extents[4] = r_.size_of_value;
  r_.value = BehindPast(Input(node, 5), Input(node, 2), past, {b, hk, t, d}, v);
  r_.extents = facts;
  const Factored query = Peel(r_.query);
  r_.query = query.element;
  const onnx::NodeProto& proto = graph_.node(node);
  const auto usual = static_cast<float>(1 / std::sqrt(static_cast<double>(q.shape[3]->value())));
  const double scale = FloatAttribute(proto, "scale", usual);
  r_.scale = scale * query.factor;
  r_.softcap = FloatAttribute(proto, "softcap", 0);
  r_.products.plain = query.factor;
  r_.products.scaled = r_.scale;
  r_.products.type = forms_.ElementType(Input(node, 0));
  r_.products.query = query.range;
  r_.products.scores = RangeOfChain({{scale, r_.products.type}});
  if (r_.softcap != 0) r_.products.capped = RangeOfChain({{r_.softcap, r_.products.type}});
  r_.softmax_type = static_cast<int32_t>(
      IntAttribute(proto, "softmax_precision", forms_.ElementType(Input(node, 0))));
  if (r_.key == nullptr || r_.value == nullptr || r_.query == nullptr) {
    return Fail("its operands are not read");
  }
  if (!IsScale(r_.scale)) return Fail("its scale is no positive number");
  if (r_.softcap != 0 && !IsScale(r_.softcap)) return Fail("its softcap is no positive number");
  return ReadVisible(node, q.shape[2], past);
}

bool AttentionReader::CountsAllKeys(ValueId valid) {
  if (valid == kNoValue) return true;
  return forms_.Of(valid).shape.size() == 1 && At(valid, {pool_.Index(0)}) == r_.extents.extents[3];
}

bool AttentionReader::HasSinkKey(NodeId node, Expr key_head, const OperandShape& k,
                                 const OperandShape& v) {
  const ValueId mask = Input(node, 3);
  const bool masked = mask != kNoValue && forms_.ElementType(mask) != TensorProto::BOOL;
  const bool alone = Input(node, 4) == kNoValue && CountsAllKeys(Input(node, 6)) &&
                     IntAttribute(graph_.node(node), "is_causal", 0) == 0;
  if (!masked || !alone) return false;
  const Expr last = pool_.Sub(r_.extents.extents[3], pool_.Integer(1));
  const std::vector<Expr> at = {pool_.Index(0), key_head, last, pool_.Index(4)};
  const Expr key = Element(Input(node, 1), at, k);
  Facts facts = r_.extents;
  r_.extents.extents[4] = r_.size_of_value;
  const Expr value = Element(Input(node, 2), at, v);
  r_.extents = facts;
  has_sink_key_ = IsRowOfSink(key, value);
  if (has_sink_key_) r_.grounds.AddLemma(lemmas::kSinkKey);
  return has_sink_key_;
}

bool AttentionReader::ReadSinkColumn(ValueId mask, const MaskShape& shape, Expr last) {
  if (!has_sink_key_) return true;
  sym::Pool::Substitution at_last;
  at_last.indices = {nullptr, nullptr, nullptr, last};
  std::vector<Expr> at = shape.at;
  for (Expr& e : at) e = pool_.Substitute(e, at_last, Facts{});
  r_.sink = forms_.At(mask, at, Facts{});
  const bool hides = r_.sink == nullptr || r_.sink->kind() == Kind::kSelect;
  return !hides || Fail("the score of its key of zeros is not read");
}

Expr AttentionReader::PastOf(NodeId node) {
  const bool keys = Input(node, 4) != kNoValue, values = Input(node, 5) != kNoValue;
  if (!keys && !values) return pool_.Integer(0);
  if (!keys || !values) return nullptr;
  const sym::Form key = forms_.Of(Input(node, 4)), value = forms_.Of(Input(node, 5));
  const bool read = key.known_rank && value.known_rank && key.shape.size() == 4 &&
                    value.shape.size() == 4 && Input(node, 6) == kNoValue;
  return read ? key.shape[2] : nullptr;
}

Expr AttentionReader::BehindPast(ValueId past, ValueId news, Expr length, std::vector<Expr> at,
                                 const OperandShape& form) {
  if (past == kNoValue) return Element(news, at, form);
  const Expr t = at[2], before = At(past, at);
  // The new row is looked up at a free index, which is then replaced by its distance from the
  // past's end.
  const Expr free = Element(news, at, form);
  if (before == nullptr || free == nullptr) return nullptr;
  sym::Pool::Substitution shift;
  shift.indices = {nullptr, nullptr, nullptr, pool_.Sub(t, length)};
  const Expr behind = pool_.Substitute(free, shift, Facts{});
  return pool_.Select(pool_.Lt(t, length, r_.extents), before, behind);
}

bool AttentionReader::ReadVisible(NodeId node, Expr queries, Expr past) {
  OperatorOrder order;
  order.queries = queries;
  order.past = past;
  if (const ValueId valid = Input(node, 6); valid != kNoValue) {
    // The valid lengths of an operator with a sink hide nothing.
    if (!has_sink_key_) order.valid = r_.valid = At(valid, {pool_.Index(0)});
    const sym::Form lengths = forms_.Of(valid);
    const bool read = has_sink_key_ || order.valid != nullptr;
    if (!read || lengths.shape.size() != 1) {
      return Fail("its valid length is not read");
    }
    r_.equal_extents.emplace_back(lengths.shape[0], r_.extents.extents[0]);
  }
  const int64_t causal = IntAttribute(graph_.node(node), "is_causal", 0);
  if (causal != 0 && causal != 1) return Fail("its is_causal is neither 0 nor 1");
  order.causal = causal == 1;
  if (order.causal || order.valid != nullptr) See(VisibleIn(pool_, order, r_.extents), {});
  const ValueId mask = Input(node, 3);
  if (mask == kNoValue) return true;
  Facts columns = r_.extents;
  if (has_sink_key_) columns.extents[3] = pool_.Add(columns.extents[3], pool_.Integer(1));
  const auto shape = ReadMaskShape(forms_, mask, columns);
  if (!shape) return Fail("its mask is not read");
  Facts where = r_.extents;
  if (has_sink_key_ && shape->is_short) {
    // The sink's column is the last one, if there are as many columns as keys.
    r_.equal_extents.emplace_back(shape->width, columns.extents[3]);
    where.extents[3] = pool_.Sub(shape->width, pool_.Integer(1));
  }
  if (!ReadSinkColumn(mask, *shape, where.extents[3])) return false;
  r_.equal_extents.insert(r_.equal_extents.end(), shape->equal_extents.begin(),
                          shape->equal_extents.end());
  if (shape->is_short && !has_sink_key_) {
    See(pool_.Lt(pool_.Index(3), shape->width, r_.extents), {});
    r_.grounds.AddLemma(lemmas::kShortMask);
  }
  const Expr e = forms_.At(mask, shape->at, where);
  if (forms_.ElementType(mask) == TensorProto::BOOL) {
    See(e, {});
    return true;
  }
  return AddBias(e);
}

}  // namespace kvlift::internal
