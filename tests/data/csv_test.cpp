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

TEST(Csv, TakesAFirstRowForAHeaderOnlyWhereAWordOfItStandsOverNumbers) {
    const CsvTable plain = parsed("5.1,3.5,rose\n4.9,3,lily\n4.7,2,rose\n", "-1");
    EXPECT_FALSE(plain.header);
    EXPECT_EQ(plain.target, (Words{"rose", "lily", "rose"})) << "the first row is a row";
    EXPECT_EQ(plain.numbers.shape(), (Shape{3, 2}));
    EXPECT_TRUE(parsed("a,b,y\n4.9,3,lily\n4.7,2,rose\n", "-1").header);
    const CsvTable years = parsed("1990,1991,kind\n1,2,lily\n3,4,rose\n", "kind");
    EXPECT_EQ(years.columns, (Words{"1990", "1991"})) << "asked for by name, so it is a header";
    EXPECT_TRUE(parsed("1990,1991,y\n1,2,0\n3,4,1\n", "-1").header) << "the target's name stands over numbers";
    EXPECT_FALSE(parsed("1,2,x7\n3,4,5\n6,7,y8\n", "-1").header) << "a mixed column has no header of words";
    EXPECT_EQ(parsed("1,2,rose\n", "2").target, (Words{"rose"})) << "one row alone";
    EXPECT_EQ(parsed("1,2,rose\n3,4,lily\n", "-1", {.header = true}).target, (Words{"lily"})) << "as it is said";
    expect_error<IoError>([] { parsed("1,Paris,a\n2,Rome,b\n", "-1"); }, {"F:1", "\"Paris\" in column \"1\""});
}

TEST(Csv, RefusesATargetWhoseNameSeveralColumnsHave) {
    expect_error<UsageError>([] { parsed("y,a,y\n1,2,3\n"); }, {"2 of its columns are called \"y\"", "number"});
    EXPECT_EQ(parsed("y,a,y\n1,2,3\n", "2").target, (Words{"3"}));
    EXPECT_EQ(parsed("a,a,y\n1,2,3\n").target, (Words{"3"})) << "others may be called alike";
}

TEST(Csv, TellsWhatSeparatesCellsWhereNothingDoes) {
    expect_error<IoError>([] { parsed("a b y\n1 2 3\n"); }, {"one column alone", ", ; tab |", "spaces"});
}

TEST(Csv, TellsNumbersThatDoNotFitFromWhatIsNone) {
    for (const char* cell : {"1e39", "-1e39", "1e400"})
        expect_error<IoError>([&] { parsed("a,y\n" + std::string(cell) + ",x\n"); }, {"F:2", "does not fit FP32"});
    expect_error<IoError>([] { parsed("a,y\n-inf,x\n"); }, {"is no finite number"});
    EXPECT_EQ(parsed("a,y\n1e-400,x\n").numbers.item(), 0);
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
