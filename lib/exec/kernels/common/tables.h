// The operator definitions of each kernel file, one function per file. registry.cc joins and sorts
// them.
#pragma once

#include "absl/types/span.h"
#include "exec/kernels/common/kernel.h"

namespace kvlift::exec {

absl::Span<const OpDef> ActivationOps();
absl::Span<const OpDef> AttentionOps();
absl::Span<const OpDef> BitwiseOps();
absl::Span<const OpDef> CastOps();
absl::Span<const OpDef> ChannelNormOps();
absl::Span<const OpDef> ContribMatMulOps();
absl::Span<const OpDef> ControlOps();
absl::Span<const OpDef> ConvOps();
absl::Span<const OpDef> ElementwiseOps();
absl::Span<const OpDef> EmbedOps();
absl::Span<const OpDef> FusedOps();
absl::Span<const OpDef> GatherOps();
absl::Span<const OpDef> GroupQueryOps();
absl::Span<const OpDef> IntegerMatMulOps();
absl::Span<const OpDef> LogicOps();
absl::Span<const OpDef> MatMulOps();
absl::Span<const OpDef> MovementOps();
absl::Span<const OpDef> MultiHeadOps();
absl::Span<const OpDef> NBitsOps();
absl::Span<const OpDef> Bnb4Ops();
absl::Span<const OpDef> NormOps();
absl::Span<const OpDef> PadOps();
absl::Span<const OpDef> QLinearOps();
absl::Span<const OpDef> QuantizeOps();
absl::Span<const OpDef> QuantizedAttentionOps();
absl::Span<const OpDef> ReduceOps();
absl::Span<const OpDef> RotaryOps();
absl::Span<const OpDef> RowsOps();
absl::Span<const OpDef> ScatterOps();
absl::Span<const OpDef> SearchOps();
absl::Span<const OpDef> ShapeOps();
absl::Span<const OpDef> SoftmaxOps();
absl::Span<const OpDef> StateOps();
absl::Span<const OpDef> TensorScatterOps();

}  // namespace kvlift::exec
