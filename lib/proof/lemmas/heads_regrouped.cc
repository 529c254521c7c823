#include "proof/lemmas/heads_regrouped.h"

#include "proof/lemmas/names.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;
using sym::Pool;

namespace {

// Replaces i1 by `head` and i2 by `row` in all elements of the reading; null leaves an index as it
// is.
void Replace(Pool& pool, Expr head, Expr row, AttentionReading* reading) {
  Pool::Substitution s;
  s.indices = {nullptr, head, row};
  const auto replace = [&](Expr e) { return e == nullptr ? e : pool.Substitute(e, s, Facts{}); };
  for (Expr* e :
       {&reading->query, &reading->key, &reading->value, &reading->visible, &reading->sink}) {
    *e = replace(*e);
  }
  for (Expr& e : reading->bias) e = replace(e);
}

}  // namespace

std::optional<int64_t> GroupSize(int64_t heads, int64_t key_heads) {
  if (heads < 1 || key_heads < 1 || heads % key_heads != 0) return std::nullopt;
  return heads / key_heads;
}

std::optional<int64_t> GroupsAsRows(Pool& pool, const AttentionReading& plain,
                                    const AttentionReading& stacked, Expr rows, Expr tokens) {
  const Expr heads = plain.extents.extents[1], groups = stacked.extents.extents[1];
  if (heads == groups) return 1;
  if (heads->kind() != Kind::kInteger || groups->kind() != Kind::kInteger) return std::nullopt;
  const auto count = GroupSize(heads->value(), groups->value());
  if (!count || rows == nullptr || rows != pool.Mul(pool.Integer(*count), tokens)) {
    return std::nullopt;
  }
  return count;
}

AttentionReading OfPlainHeads(Pool& pool, AttentionReading plain, int64_t groups, int64_t g) {
  const Expr head = pool.Add(pool.Mul(pool.Integer(groups), pool.Index(1)), pool.Integer(g));
  Replace(pool, head, nullptr, &plain);
  plain.extents.extents[1] = pool.Integer(plain.extents.extents[1]->value() / groups);
  return plain;
}

AttentionReading OfStackedRows(Pool& pool, AttentionReading stacked, Expr tokens, int64_t g) {
  const Expr row = pool.Add(pool.Mul(pool.Integer(g), tokens), pool.Index(2));
  Replace(pool, nullptr, row, &stacked);
  stacked.extents.extents[2] = tokens;
  stacked.grounds.AddLemma(lemmas::kHeadsRegrouped);
  return stacked;
}

}  // namespace kvlift
