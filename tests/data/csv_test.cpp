#include "invar/data/csv.h"

#include "files.h"

namespace invar {

using namespace testing;

namespace {

CsvTable parsed(std::string_view text, const std::string& target = "y", CsvOptions options = {}) {
    options.target = target;
    return parse_csv(text, "F", options);
}

using Words = std::vector<std::string>;
using Floats = std::vector<float>;

}  // namespace

TEST(Csv, ReadsColumnsByTheirNames) {
    const CsvTable table = parsed("a,y,b\n1,cat,2.5\n-3,dog,1e3\n");
    EXPECT_EQ(table.columns, (Words{"a", "b"}));
    EXPECT_EQ(table.numbers.shape(), (Shape{2, 2}));
    EXPECT_EQ(table.numbers.to_vector<float>(), (Floats{1, 2.5, -3, 1000}));
    EXPECT_EQ(table.target, (Words{"cat", "dog"}));
    EXPECT_EQ(table.lines, (std::vector<std::int64_t>{2, 3}));
}

TEST(Csv, TakesColumnsByNumberWhereThereIsNoHeader) {
    EXPECT_EQ(parsed("1,2,3\n4,5,6\n", "0").target, (Words{"1", "4"}));
    EXPECT_EQ(parsed("1,2,3\n4,5,6\n", "-1").target, (Words{"3", "6"}));
    EXPECT_EQ(parsed("1,2,3\n4,5,6\n", "-1").columns, (Words{"0", "1"}));
    EXPECT_EQ(parsed("7,8\n1,2\n", "8", {.header = true}).target, (Words{"2"})) << "a header of numbers, if it is said";
    expect_error<IoError>([] { parsed("a,b\n1,2\n", "0", {.header = false}); }, {"F:1", "\"b\"", "no finite number"});
}

TEST(Csv, KnowsTheUsualSeparatorsQuotesAndLineEnds) {
    for (const char* text : {"a;y\r\n1;x\r\n", "a\ty\n1\tx", "a|y\n1|x\n",
                             "\xef\xbb\xbf"
                             "a , y \n 1 , x \n\n"}) {
        const CsvTable table = parsed(text);
        EXPECT_EQ(table.columns, (Words{"a"})) << text;
        EXPECT_EQ(table.target, (Words{"x"})) << text;
    }
    const CsvTable quoted = parsed("\"a,b\",\"y\"\n\"1\",\"two \"\"words\"\",\nand a line\"\n2,z\n");
    EXPECT_EQ(quoted.columns, (Words{"a,b"}));
    EXPECT_EQ(quoted.target, (Words{"two \"words\",\nand a line", "z"}));
    EXPECT_EQ(quoted.lines, (std::vector<std::int64_t>{2, 4}));
    EXPECT_EQ(parsed("a,y\n1,x\n", "y", {.separator = ','}).target, (Words{"x"}));
}

TEST(Csv, RefusesMissingValuesWithLineAndColumn) {
    for (const char* missing : {"", "NA", "nan", "NaN", "null", "?", " "})
        expect_error<IoError>([&] { parsed("a,b,y\n1,2,x\n3," + std::string(missing) + ",x\n"); },
                              {"F:3", "column \"b\" is missing"});
    expect_error<IoError>([] { parsed("a,y\n1,\n"); }, {"F:2", "column \"y\" is missing"});
}

TEST(Csv, RefusesWhatIsNoNumberOrNotFinite) {
    for (const char* cell : {"red", "1.5.2", "0x10", "1,5x", "inf", "1e39", "--1", "+-1", "1 2"})
        expect_error<IoError>([&] { parsed("a;y\n" + std::string(cell) + ";x\n"); }, {"F:2", "\"a\""});
    EXPECT_EQ(parsed("a;y\n+1.5;x\n").numbers.item(), 1.5);
}

TEST(Csv, RefusesRowsOfAnotherLengthAndOpenQuotes) {
    expect_error<IoError>([] { parsed("a,y\n1,x\n1,x,2\n"); }, {"F:3", "3 cells in this row, and 2 in the first"});
    expect_error<IoError>([] { parsed("a,y\n1,\"x\n"); }, {"F:2", "never closed"});
    expect_error<IoError>([] { parsed("a,y\n1,\"x\"z\n"); }, {"F:2", "behind a closing quote"});
    expect_error<IoError>([] { parsed(""); }, {"nothing in it"});
    expect_error<IoError>([] { parsed("a,y\n"); }, {"no row"});
    expect_error<IoError>([] { parsed("y\nx\n"); }, {"one column alone"});
}

TEST(Csv, NamesTheNearestColumnWhereTheTargetIsNotThere) {
    expect_error<UsageError>([] { parsed("width,height\n1,2\n", "heigth"); }, {"heigth", "did you mean 'height'?"});
    expect_error<UsageError>([] { parsed("1,2\n", "2"); }, {"no column", "0, 1"});
}

}  // namespace invar
