// If, Loop and Scan run bodies, which the program and its frames do; they are listed here without
// functions so that the table of operators is complete.
#include "exec/kernels/tables.h"

namespace kvlift::exec {
namespace {

constexpr OpDef kOps[] = {
    {"", "If", 1, nullptr, nullptr},
    {"", "Loop", 1, nullptr, nullptr},
    {"", "Scan", 9, nullptr, nullptr},
};

}  // namespace

absl::Span<const OpDef> ControlOps() { return kOps; }

}  // namespace kvlift::exec
