// LIBS: proof sym onnxio
// Equality of expressions where it takes cases of their comparisons.
#include "proof/correspondence/equality.h"

#include "gtest/gtest.h"
#include "support/forms_fixture.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

// A row i0 of a mask with T columns, read at column i1 + P - 5, where P is an extent.
class EqualityTest : public ::testing::Test {
 protected:
  sym::Pool& pool() { return m_.forms().pool(); }
  Expr Number(int64_t n) { return pool().Integer(n); }
  Expr Past() { return pool().Dim("P"); }
  Expr Column() { return pool().Add(pool().Index(1), pool().Sub(Past(), Number(5))); }
  Expr Sees(Expr column) {
    const Expr args[] = {pool().Index(0), column};
    return pool().Not(pool().Eq(pool().Load(m_.Find("mask"), args), Number(0), Facts{}));
  }
  // 5 <= P and, at a column that is not in front of `least`, mask[i0, i1 + P - 5]; mask[i0, 0]
  // elsewhere.
  Expr FromColumn(int64_t least) {
    const Expr behind = pool().Le(Number(least), Column(), Facts{});
    const Expr first = pool().And(pool().Not(behind), Sees(Number(0)));
    const Expr read = pool().Or(pool().And(behind, Sees(Column())), first);
    return pool().And(pool().Le(Number(5), Past(), Facts{}), read);
  }
  bool Equal(Expr a, Expr b) {
    Equality equality(m_.forms());
    return equality.Equal(a, b, pool().True(), Facts{});
  }

  testing::FormsOfText m_{testing::ModelText("(int64[B,T] mask, float[P] past) => (int64[B,T] y)",
                                             "y = Identity (mask)")};
};

// Columns count from 0, so that the first one is the only one in front of column 1.
TEST_F(EqualityTest, AnIndexWithOneValueLeftIsThatValue) {
  const Expr all = pool().And(pool().Le(Number(5), Past(), Facts{}), Sees(Column()));
  EXPECT_TRUE(Equal(FromColumn(1), all));
  EXPECT_TRUE(Equal(all, FromColumn(1)));
  // Column 1 would be read as column 0.
  EXPECT_FALSE(Equal(FromColumn(2), all));
  EXPECT_FALSE(Equal(all, FromColumn(2)));
}

// Where P may be less than 5, the columns in front of the first one are not known.
TEST_F(EqualityTest, AnIndexWithSeveralValuesLeftIsNoneOfThem) {
  const Expr behind = pool().Le(Number(1), Column(), Facts{});
  const Expr clamped = pool().Or(pool().And(behind, Sees(Column())),
                                 pool().And(pool().Not(behind), Sees(Number(0))));
  EXPECT_FALSE(Equal(clamped, Sees(Column())));
}

// A window of 5 rows that fills has P <= 5 rows: where a mask asks for 5 <= P, there are 5.
TEST_F(EqualityTest, ASizeWithOneNumberLeftIsThatNumber) {
  const Expr reads = pool().And(pool().Le(Number(5), Past(), Facts{}), Sees(Column()));
  const Expr fills = pool().And(pool().Le(Past(), Number(4), Facts{}), Sees(pool().Index(1)));
  EXPECT_FALSE(Equal(pool().Or(reads, fills), Sees(pool().Index(1))));
  Equality equality(m_.forms());
  const Expr most = pool().Le(Past(), Number(5), Facts{});
  EXPECT_TRUE(equality.Equal(pool().Or(reads, fills), Sees(pool().Index(1)), most, Facts{}));
  const Expr more = pool().Le(Past(), Number(6), Facts{});
  EXPECT_FALSE(equality.Equal(pool().Or(reads, fills), Sees(pool().Index(1)), more, Facts{}));
}

}  // namespace
}  // namespace kvlift
