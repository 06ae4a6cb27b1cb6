// The live line of a run on a terminal: what it shows, and that nothing of it is left anywhere, also when the terminal
// is resized under it.
#include <regex>

#include "tests/cli/terminal.h"

namespace invar::cli {
namespace {

class LiveLines : public TerminalTest {
  protected:
    // More steps than anyone waits for, without lines between them.
    static Words endless(const Words& more = {}) {
        Words words = small({"trainer.max_epochs=1000", "data.size=16000", "trainer.limit_val_batches=0",
                             "trainer.checkpoint_every_n_steps=0", "--mixed_precision", "fp16"});
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    // Every line that was drawn, without the control characters around it: it ends by erasing all that follows it, and
    // with the cursor before it, so that what the terminal makes of it when it is resized lies behind the cursor.
    static std::vector<std::string> drawn(const std::string& shown) {
        std::vector<std::string> all;
        for (std::size_t end = 0; (end = shown.find(kEnd, end)) != shown.npos; ++end) {
            const std::size_t begin = shown.find_last_of("\r\n", end) + 1;
            all.push_back(shown.substr(begin, end - begin));
        }
        return all;
    }
    static constexpr std::string_view kEnd = "\x1b[J\r";
    static constexpr const char* kInterrupt = "\x03";  // what Ctrl-C sends
};

TEST_F(LiveLines, AreDrawnInPlaceAndTakenAway) {
    const Result result = on_terminal(small({"--mixed_precision", "fp16"}));
    ASSERT_EQ(result.code, 0) << result.out;
    ASSERT_FALSE(drawn(result.out).empty()) << result.out;
    EXPECT_FALSE(has(result.out, "step 1/10  ")) << "no line for each step: " << result.out;
    const std::size_t end = result.out.find("finished");
    ASSERT_NE(end, std::string::npos);
    EXPECT_TRUE(has(result.out.substr(0, end), "\r\x1b[J")) << "the line is erased";
    EXPECT_FALSE(has(result.out.substr(end), "\x1b[J")) << result.out;
}

TEST_F(LiveLines, ShowTheLossOfTheStepAndTheEpoch) {
    bool asked = false;
    const Result result = watched(endless(), 160, [&](int terminal, const std::string& shown) {
        if (!asked && drawn(shown).size() >= 4) asked = ::write(terminal, kInterrupt, 1) == 1;
    });
    EXPECT_EQ(result.code, 128 + SIGINT) << result.out;
    const std::regex all(
        "[0-9]+/[0-9]+ +[0-9]+%  loss [0-9.]+  epoch [0-9]+/1000  ETA [0-9:]+  .*samples/s.*  scale [0-9]+  grad_norm");
    ASSERT_GE(drawn(result.out).size(), 4u);
    EXPECT_TRUE(std::regex_search(drawn(result.out)[3], all)) << drawn(result.out)[3];
}

TEST_F(LiveLines, FitATerminalThatIsMadeNarrowerAndWiderAgain) {
    constexpr unsigned short kWidths[] = {120, 70, 34, 12, 100};
    std::vector<std::size_t> drawn_before;  // when each width was set
    bool asked = false;
    const Result result = watched(endless(), kWidths[0], [&](int terminal, const std::string& shown) {
        const std::size_t lines = drawn(shown).size(), next = drawn_before.size() + 1;
        if (asked || lines < 3 * next) return;
        if (next == std::size(kWidths)) {
            asked = ::write(terminal, kInterrupt, 1) == 1;
            return;
        }
        drawn_before.push_back(lines + 1);  // one may be under way
        const winsize size{40, kWidths[next], 0, 0};
        ::ioctl(terminal, TIOCSWINSZ, &size);
    });
    EXPECT_EQ(result.code, 128 + SIGINT);
    const std::vector<std::string> lines = drawn(result.out);
    ASSERT_EQ(drawn_before.size() + 1, std::size(kWidths));
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const auto set = std::size_t(std::ranges::upper_bound(drawn_before, i) - drawn_before.begin());
        const bool either = set < drawn_before.size() && i + 1 == drawn_before[set];  // the one that was under way
        EXPECT_LT(columns_of(lines[i]), either ? std::max(kWidths[set], kWidths[set + 1]) : kWidths[set]) << lines[i];
    }
    EXPECT_GT(columns_of(lines.back()), 34u) << "it takes the room that it gets: " << lines.back();
}

TEST_F(LiveLines, NeverReachTheEndOfANarrowTerminal) {
    const Result result = on_terminal(small(), 30);
    ASSERT_EQ(result.code, 0);
    ASSERT_FALSE(drawn(result.out).empty());
    for (const std::string& line : drawn(result.out)) EXPECT_LT(columns_of(line), 30u) << line;
}

}  // namespace
}  // namespace invar::cli
