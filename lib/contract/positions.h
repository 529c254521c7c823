#pragma once

namespace kvlift {

// What an input "as control" may hold besides "P" and "T": the positions of a step's tokens, where
// no input of the source holds them. Its shape is ["B", "S"], ["1", "S"] or ["S"]. `convert` makes
// none; relations of models that kvlift did not make have it.
inline constexpr char kPositionsOfTokens[] = "P..T-1";

// A bool input [B, 1, S, S] that says which new tokens a new token sees. The model does what its
// source does where token j is visible to token i for j <= i.
inline constexpr char kLowerTriangle[] = "lower_triangle";

}  // namespace kvlift
