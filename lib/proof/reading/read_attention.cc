#include "proof/reading/read_attention.h"

#include "proof/reading/attention_reader.h"

namespace kvlift {

AttentionReading ReadAttention(sym::Forms& forms, ValueId result, int64_t heads) {
  return internal::AttentionReader(forms, heads).Run(result);
}

}  // namespace kvlift
