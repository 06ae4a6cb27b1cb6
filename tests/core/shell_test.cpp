#include "invar/core/shell.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

TEST(ShellWord, IsQuotedOnlyWhereNeeded) {
    EXPECT_EQ(shell_word("trainer.precision=32-true"), "trainer.precision=32-true");
    EXPECT_EQ(shell_word("a b"), "'a b'");
    EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_word(""), "''");
    EXPECT_EQ(shell_word("$(rm -rf x)"), "'$(rm -rf x)'");
}

}  // namespace
}  // namespace invar
