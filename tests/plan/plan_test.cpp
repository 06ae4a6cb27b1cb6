// Plans as a whole: what fits, the largest batch, and how they grow with ranks.
#include "invar/plan/plan.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/report/plan_page.h"
#include "invar/tasks/registry.h"
#include "invar/train/bench.h"
#include "tests/core/expect_error.h"
#include "tests/plan/configs.h"

namespace invar {
namespace {

PlanOptions small_card() {
    PlanOptions options;
    options.base = config_of("fashion_mnist_vit", {"data.batch_size=16"});
    options.precisions = {"32-true", "bf16-mixed"};
    options.card = card_named("h100");
    options.card.memory = (std::int64_t(1) << 30) + options.card.reserved;
    options.ranks = 4;
    return options;
}

TEST(Plans, FindTheBatchThatFitsWhileOneMoreDoesNot) {
    const PlanOptions options = small_card();
    const Config base = with_made_up_data(options.base);
    const std::shared_ptr<const Task> task = make_task(base);
    for (const PlanRow& row : make_plan(options).rows) {
        SCOPED_TRACE(row.precision + " " + std::string(name_of(row.ranks.strategy)));
        ASSERT_TRUE(row.fits);
        ASSERT_GT(row.largest_batch, 16);
        const Config config = in_precision(base, row.precision);
        const CountFor here{Device::cuda(), options.card.usable(), nullptr, row.ranks};
        EXPECT_TRUE(count_step(task, config, row.largest_batch, here));
        EXPECT_FALSE(count_step(task, config, row.largest_batch + 1, here));
    }
}

TEST(Plans, FitMoreIntoFewerBitsAndIntoShares) {
    const Plan plan = make_plan(small_card());
    ASSERT_EQ(plan.rows.size(), 6u);
    const auto batch = [&](std::size_t row) { return plan.rows[row].largest_batch; };
    EXPECT_LE(batch(0), batch(1));  // ddp, zero1, zero2 in FP32
    EXPECT_LE(batch(1), batch(2));
    EXPECT_LT(batch(0), batch(3));  // and then in BF16
    EXPECT_LE(batch(3), batch(5));
}

TEST(Plans, SayWhereNothingFits) {
    PlanOptions options = small_card();
    options.card.memory = options.card.reserved + (std::int64_t(1) << 20);
    const Plan plan = make_plan(options);
    EXPECT_FALSE(plan.any_fits());
    EXPECT_EQ(plan.rows[0].largest_batch, 0);
}

// Memory for a step, and an evaluation that finds what it freed, but for no recording, which would keep its own.
TEST(Plans, TellOfStepsWithoutRoomForARecording) {
    PlanOptions options = small_card();
    options.base = config_of("fashion_mnist", {"data.batch_size=4096"});
    options.card = card_named("h100");
    options.largest_batch = false;
    options.precisions = {"bf16-mixed"};
    options.strategies = {Strategy::ddp};
    const PlanRow roomy = make_plan(options).rows[0];
    EXPECT_EQ(how_it_fits(roomy), "yes");
    const std::int64_t batch = 4096 * 784 * sizeof(float), least = roomy.memory.total + batch;
    options.card.memory = options.card.reserved + least + 2 * batch;
    const PlanRow row = make_plan(options).rows[0];
    EXPECT_EQ(how_it_fits(row), "eagerly");
    EXPECT_GE(row.time.total(), roomy.time.total());
    options.card.memory = options.card.reserved + least;
    EXPECT_EQ(how_it_fits(make_plan(options).rows[0]), "no");
}

TEST(Plans, GoFromOneRankToAThousand) {
    PlanOptions options = small_card();
    options.largest_batch = false;
    const Plan plan = make_plan(options);
    ASSERT_EQ(plan.scaling.size(), 6u * 11);
    for (std::size_t i = 0; i < plan.scaling.size(); ++i) {
        const PlanRow& row = plan.scaling[i];
        EXPECT_EQ(row.ranks.count, 1 << (i % 11));
        if (i % 11 == 0) {
            EXPECT_EQ(row.scaling, 1.0);
        } else {
            EXPECT_GT(row.per_second, plan.scaling[i - 1].per_second);  // links never make more ranks slower than fewer
        }
    }
}

TEST(Plans, AreShownAsAPageThatNeedsNothingElse) {
    PlanOptions options = small_card();
    options.largest_batch = false;
    const std::string page = plan_page(make_plan(options), "vit<&>");
    EXPECT_NE(page.find("vit&lt;&amp;&gt; on NVIDIA H100"), page.npos);
    EXPECT_NE(page.find("<svg"), page.npos);
    for (const char* outside : {"<script", "http://", "https://", "<link"}) EXPECT_EQ(page.find(outside), page.npos);
}

// Speeds are plotted where the step fits, memory and traffic everywhere.
TEST(Plans, ArePlottedAsFarAsTheyFit) {
    PlanOptions options = small_card();
    options.largest_batch = false;
    options.precisions = {"32-true"};
    options.strategies = {Strategy::ddp};
    Plan plan = make_plan(options);
    const auto points = [&] {
        const std::string page = plan_page(plan, "vit");
        std::vector<std::size_t> counts;
        for (std::size_t svg = page.find("<svg"); svg != page.npos; svg = page.find("<svg", svg + 1)) {
            const std::string plot = page.substr(svg, page.find("</svg>", svg) - svg);
            const std::size_t path = plot.find("<path");
            const std::string line = path == plot.npos ? "" : plot.substr(path, plot.find("/>", path) - path);
            counts.push_back(std::size_t(std::ranges::count_if(line, [](char c) { return c == 'M' || c == 'L'; })));
        }
        return counts;
    };
    EXPECT_EQ(points(), (std::vector<std::size_t>{11, 11, 11, 11}));
    for (PlanRow& row : plan.scaling) row.fits = row.ranks.count >= 8;
    EXPECT_EQ(points(), (std::vector<std::size_t>{8, 8, 11, 11}));
}

TEST(Plans, RefuseWhatCannotBePlanned) {
    PlanOptions options = small_card();
    options.ranks = 0;
    EXPECT_ERROR(make_plan(options), UsageError, "--ranks 0: must be 1 to 1024");
    options = small_card();
    options.precisions = {"fp8"};
    EXPECT_ERROR(make_plan(options), UsageError, "FP8");
    options.precisions = {};
    EXPECT_ERROR(make_plan(options), UsageError, "--precisions is empty");
}

}  // namespace
}  // namespace invar
