#include "exec/kernels/elementwise/rows_impl.h"

namespace kvlift::exec {

const RowTable& GenericRows() {
  static constexpr RowTable table = MakeRowTable();
  return table;
}

}  // namespace kvlift::exec
