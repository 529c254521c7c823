// LIBS: ir
// Equations of Einsum with an ellipsis, and without a result.
#include "ir/operators/einsum_equation.h"

#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace kvlift {
namespace {

// Returns "ab,bc->ac"; "none" if the equation is not read.
std::string Spelled(std::string_view text, const std::vector<size_t>& ranks) {
  const auto equation = ReadEinsumEquation(text, ranks);
  if (!equation) return "none";
  std::string spelled;
  for (const std::string& term : equation->operands) spelled += (spelled.empty() ? "" : ",") + term;
  return spelled + "->" + equation->result;
}

TEST(EinsumEquation, KeepsItsLabels) {
  EXPECT_EQ(Spelled("b h s d, b h t d -> b h s t", {4, 4}), "bhsd,bhtd->bhst");
  EXPECT_EQ(Spelled("ab->ba", {2}), "ab->ba");
}

TEST(EinsumEquation, AxesOfAnEllipsisAreCountedFromItsEnd) {
  EXPECT_EQ(Spelled("...qd,...kd->...qk", {4, 4}), "YZqd,YZkd->YZqk");
  EXPECT_EQ(Spelled("...qd,...kd->...qk", {2, 3}), "qd,Zkd->Zqk");
  EXPECT_EQ(Spelled("Z...d,d->Z...", {3, 1}), "ZYd,d->ZY");
}

TEST(EinsumEquation, ImpliedResultsHaveTheLabelsThatOccurOnce) {
  EXPECT_EQ(Spelled("ij,jk", {2, 2}), "ij,jk->ik");
  EXPECT_EQ(Spelled("ba", {2}), "ba->ab");
  EXPECT_EQ(Spelled("...ij,...jk", {3, 3}), "Zij,Zjk->Zik");
}

TEST(EinsumEquation, OtherRanksAndLettersAreNotRead) {
  EXPECT_EQ(Spelled("ab,bc->ac", {2, 3}), "none");
  EXPECT_EQ(Spelled("ab,bc->ac", {2}), "none");
  EXPECT_EQ(Spelled("...ab->ab", {1}), "none");
  EXPECT_EQ(Spelled("a1->a", {2}), "none");
  EXPECT_EQ(Spelled("ab->a->b", {2}), "none");
  EXPECT_EQ(Spelled("....a->a", {4}), "none");
}

TEST(EinsumEquation, WithoutRanksThereIsNoEllipsis) {
  EXPECT_EQ(Spelled("ab,bc->ac", {}), "ab,bc->ac");
  EXPECT_EQ(Spelled("...a->a", {}), "none");
}

TEST(EinsumEquation, TellsLabelsThatOccurTwice) {
  EXPECT_TRUE(ReadEinsumEquation("ab,bc->ac", {})->HasEachLabelOnce());
  EXPECT_FALSE(ReadEinsumEquation("aa->a", {})->HasEachLabelOnce());
}

}  // namespace
}  // namespace kvlift
