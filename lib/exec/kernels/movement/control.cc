// If, Loop and Scan. Programs and frames run their bodies; they are listed here without functions
// so that the operator table is complete.
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

constexpr OpDef kControlOps[] = {
    {"", "If", 1, nullptr, nullptr},
    {"", "Loop", 1, nullptr, nullptr},
    {"", "Scan", 9, nullptr, nullptr},
};

}  // namespace

absl::Span<const OpDef> ControlOps() { return kControlOps; }

}  // namespace kvlift::exec
