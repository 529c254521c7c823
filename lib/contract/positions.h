// Values of ManifestInput::value for controls, besides "P" and "T".
#pragma once

namespace kvlift {

// The input holds the positions P..T-1 of the step's tokens, where no input of the source holds
// them. Its shape is ["B", "S"], ["1", "S"] or ["S"]. `convert` makes no such input; relations of
// models that kvlift did not convert may have it.
inline constexpr char kPositionsOfTokens[] = "P..T-1";

// A bool input [B, 1, S, S] that says which new tokens each new token sees (a tree mask). The model
// equals its source if token i sees token j exactly for j <= i.
inline constexpr char kLowerTriangle[] = "lower_triangle";

}  // namespace kvlift
