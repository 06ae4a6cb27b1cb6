#include "invar/data/text_batch.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

TEST(TextBatch, GivesBackTheTextsThatWerePut) {
    const Batch batch = make_text_batch(2, {32, 32, 3}, {.texts = 3, .points = 5});
    const std::vector<detect::TextRegion> texts = {{{{1, 2}, {9.5, 2}, {9.5, 7}, {1, 7}}, "word", false},
                                                   {{{1, 1}, {2, 1}, {3, 2}, {2, 3}, {1, 3}}, "", true}};
    put_texts(batch, 0, std::vector(3, texts[0]));
    put_texts(batch, 0, texts);  // instead of those
    const auto back = texts_of(batch);
    ASSERT_EQ(back.size(), 2u);
    EXPECT_TRUE(back[1].empty());
    ASSERT_EQ(back[0].size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(back[0][i].polygon, texts[i].polygon);
        EXPECT_EQ(back[0][i].dont_care, texts[i].dont_care);
    }
    EXPECT_EQ(texts_of(batch.head(1)).size(), 1u);
}

TEST(TextBatch, RefusesMoreThanItHolds) {
    const Batch batch = make_text_batch(1, {32, 32, 3}, {.texts = 1, .points = 4});
    const detect::TextRegion text{{{0, 0}, {4, 0}, {4, 4}, {2, 5}, {0, 4}}, {}, false};
    EXPECT_ERROR(put_texts(batch, 0, std::vector{text}), Error, "a text has 5 points, and a batch holds 4 of each");
    EXPECT_ERROR(put_texts(batch, 0, std::vector(2, detect::TextRegion{})), Error, "has 2 texts");
    batch["points"].data<std::int64_t>()[0] = 9;
    EXPECT_ERROR(texts_of(batch), Error, "has 9 points");
}

}  // namespace
}  // namespace invar
