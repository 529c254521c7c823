#include "proof/lemmas/sink_key.h"

namespace kvlift {

bool IsRowOfSink(sym::Expr key, sym::Expr value) {
  return key != nullptr && value != nullptr && key->is_integer(0) && value->is_integer(0);
}

}  // namespace kvlift
