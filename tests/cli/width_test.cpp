// Tables on a terminal of 80 columns: none of any command is wider, whatever the names in it.
#include "tests/cli/terminal.h"

namespace invar::cli {
namespace {

class Width : public TerminalTest {
  protected:
    // Lines of tables, known by the gaps between their columns.
    static std::vector<std::string> table_lines(const std::string& shown) {
        std::vector<std::string> found;
        std::istringstream text(shown);
        for (std::string line; std::getline(text, line);) {
            constexpr std::string_view kErased = "\x1b[J";
            if (const std::size_t at = line.rfind(kErased); at != line.npos) line.erase(0, at + kErased.size());
            const std::size_t gap = line.find("  ", std::min(line.find_first_not_of(' '), line.size()));
            if (gap != line.npos && line.find_first_not_of(" \r", gap) != line.npos) found.push_back(line);
        }
        return found;
    }
    void fits(const Words& words) const {
        const Result result = on_terminal(words, 80);
        const std::vector<std::string> rows = table_lines(result.out);
        EXPECT_FALSE(rows.empty()) << words[0] << " shows no table: " << result.out;
        for (const std::string& line : rows) EXPECT_LE(columns_of(line), 80u) << words[0] << ": " << line;
    }
    static constexpr const char* kLong = "a_run_with_a_name_as_long_as_those_that_say_all_of_what_was_tried_in_it";
};

TEST_F(Width, OfWhatARunLeavesIsThatOfTheTerminal) {
    const std::string first = std::string("exp_name=") + kLong + "_first",
                      second = std::string("exp_name=") + kLong + "_second",
                      folder = std::string("runs/") + kLong + "_first",
                      other = std::string("runs/") + kLong + "_second";
    fits(small(
        {first, "--mixed_precision", "fp16", "trainer.precision_schedule={3: 32-true, 5: 16-mixed, 7: 32-true}"}));
    ASSERT_EQ(invar(small({second, "seed=1", "--mixed_precision", "fp16"})).code, 0);
    fits({"runs"});
    fits({"inspect", folder + "/checkpoints/step_00000010.safetensors"});
    fits({"inspect", folder, "--tensor", "1.weight"});
    fits({"eval", folder});
    fits({"diagnose", folder});
    fits({"compare", folder, other});
}

TEST_F(Width, TakesNamesBeforeFiguresAndSaysWhatIsNotShown) {
    ASSERT_EQ(invar(small({std::string("exp_name=") + kLong, "--mixed_precision", "bf16"})).code, 0);
    const std::string shown = on_terminal({"runs"}, 80).out;
    EXPECT_TRUE(has(shown, "val_accuracy") && has(shown, "val_loss")) << shown;
    EXPECT_FALSE(has(shown, kLong)) << shown;
    const std::string narrow = on_terminal({"runs"}, 60).out;
    EXPECT_TRUE(has(narrow, "no room for steps")) << narrow;
    EXPECT_FALSE(has(on_terminal({"runs"}, 200).out, "no room for"));
}

TEST_F(Width, OfWhatAConfigurationIsAskedIsThatOfTheTerminal) {
    fits({"formats"});
    fits({"ops"});
    fits(small({"--as", "fp16", "--no-validate"}, {"tune"}));
    fits(small({"--steps", "2", "--precisions", "32-true,16-mixed"}, {"bench"}));
    fits(small({"trainer.precision=fp16"}, {"plan"}));
    fits(small({}, {"data"}));
}

TEST_F(Width, CutsNothingForAPipe) {
    const std::string name = std::string("exp_name=") + kLong;
    ASSERT_EQ(invar(small({name})).code, 0);
    const Result result = invar({"runs"});
    EXPECT_TRUE(has(result.out, std::string("runs/") + kLong + "  ")) << result.out;
    EXPECT_TRUE(has(result.out, "val_accuracy")) << result.out;
}

}  // namespace
}  // namespace invar::cli
