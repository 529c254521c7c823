#include "sym/forms/broadcast.h"

#include <vector>

namespace kvlift::sym {

Expr BroadcastAt(Forms& forms, ValueId v, absl::Span<const Expr> at, const Facts& facts) {
  const Form form = forms.Of(v);
  if (!form.known_rank || form.shape.size() > at.size()) return nullptr;
  std::vector<Expr> own(at.end() - static_cast<std::ptrdiff_t>(form.shape.size()), at.end());
  for (size_t k = 0; k < own.size(); ++k) {
    if (form.shape[k]->is_integer(1)) own[k] = forms.pool().Integer(0);
  }
  return forms.At(v, own, facts);
}

}  // namespace kvlift::sym
