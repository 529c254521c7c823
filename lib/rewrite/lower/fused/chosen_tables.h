// Tables of cosines and sines that an If chooses by the number of tokens, as exports of models with
// LongRoPE have them: each branch gives a constant, and the constants have different numbers of
// rows. Internal to lib/rewrite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rewrite/lower/fused/fused_lowering.h"

namespace kvlift::fused {

// A value that an If with this condition makes of one of two constants of shape [rows, width]. The
// tensors live as long as the graph.
struct ChosenTable {
  std::string condition;
  const onnx::TensorProto* if_true = nullptr;
  const onnx::TensorProto* if_false = nullptr;

  int64_t width() const { return if_true->dims(1); }
};

// Returns the table; nullopt if the operand is no such value.
std::optional<ChosenTable> ReadChosenTable(Lowering& l, NodeId n, size_t input);
// Returns the width of a table, chosen or not; 0 if it is not known.
int64_t WidthOfTable(Lowering& l, NodeId n, size_t input);
// Adds nodes that read rows of the table. positions: int64 [B, S]. Returns [B, S, width]. A
// position beyond a constant gives its last row; the If does not choose that constant then, or the
// source fails.
std::string RowsOfChosenTable(Lowering& l, const ChosenTable& table, const std::string& positions);

}  // namespace kvlift::fused
