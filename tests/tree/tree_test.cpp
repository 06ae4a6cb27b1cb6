// The whole source tree against its rules. A finding names file and line, as a compiler would.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tree/source_rules.h"

namespace invar::tree {
namespace {

namespace fs = std::filesystem;

struct Source {
    std::string path;
    std::string text;
};

std::vector<Source> read_sources(const std::vector<std::string>& folders) {
    const fs::path root = INVAR_SOURCE_DIR;
    std::vector<Source> sources;
    for (const std::string& folder : folders) {
        if (!fs::exists(root / folder)) continue;
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
            const std::string extension = entry.path().extension().string();
            const bool source = extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh";
            if (!entry.is_regular_file() || !source) continue;
            std::ostringstream text;
            text << std::ifstream(entry.path()).rdbuf();
            sources.push_back({fs::relative(entry.path(), root).generic_string(), text.str()});
        }
    }
    std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
    return sources;
}

const std::vector<Source>& library() {
    static const std::vector<Source> sources = read_sources({"invar"});
    return sources;
}

using Rule = Findings (*)(std::string_view, std::string_view);

void expect_no_findings(const std::vector<Source>& sources, Rule rule) {
    for (const Source& source : sources)
        for (const Finding& finding : rule(source.path, source.text)) ADD_FAILURE() << finding.str();
}

TEST(Tree, IsFoundWhereTheTestLooks) {
    const auto has = [](const std::string& path) {
        return std::any_of(library().begin(), library().end(), [&](const Source& s) { return s.path == path; });
    };
    EXPECT_TRUE(has("invar/core/tensor.h") && has("invar/core/tensor.cpp")) << "looked in " << INVAR_SOURCE_DIR;
}

TEST(Tree, EachFolderIncludesOnlyFoldersAboveIt) {
    expect_no_findings(library(), check_include_order);
}

TEST(Tree, TheUmbrellaHeaderReachesEveryFolderOfTheLibrary) {
    std::set<std::string> folders;
    std::string umbrella;
    for (const Source& source : library()) {
        if (source.path == "invar/invar.h") umbrella = source.text;
        const std::string rest = source.path.substr(std::string("invar/").size());
        if (const std::size_t slash = rest.find('/'); slash != rest.npos) folders.insert(rest.substr(0, slash));
    }
    folders.erase("cli");  // the program is not part of the library
    EXPECT_GT(folders.size(), 10u);
    for (const std::string& folder : folders)
        EXPECT_NE(umbrella.find("#include \"invar/" + folder + "/"), umbrella.npos) << "invar.h lacks " << folder;
}

TEST(Tree, EveryHeaderSaysWhatItIsForAndIsIncludedOnce) {
    expect_no_findings(library(), check_header);
    expect_no_findings(read_sources({"tests"}), check_header);
}

TEST(Tree, NoSourceFileIsTooLong) {
    expect_no_findings(read_sources({"invar", "tests", "bench", "examples"}), check_length);
}

TEST(Tree, TheLibraryNeverPrintsExitsOrAborts) {
    expect_no_findings(library(), check_silence);
}

TEST(Tree, NoTwoFilesDefineATypeOfTheSameName) {
    std::map<std::string, std::string> seen;
    for (const Source& source : library())
        for (const DefinedType& type : types_defined_in(source.text)) {
            const Finding here{source.path, type.line, type.name + " is defined"};
            const auto [where, fresh] = seen.emplace(type.name, here.str());
            EXPECT_TRUE(fresh) << here.str() << " here too, after " << where->second;
        }
    EXPECT_TRUE(seen.contains("invar::Tensor") && seen.contains("invar::Module") && seen.contains("invar::Dtype"));
}

// ---- the rules themselves ----

std::vector<std::string> lines(const Findings& findings) {
    std::vector<std::string> texts;
    for (const Finding& finding : findings) texts.push_back(finding.str());
    return texts;
}
using Lines = std::vector<std::string>;

TEST(IncludeOrder, CatchesAFolderThatIncludesOneBelowIt) {
    const char* text = "#include <vector>\n#include \"invar/core/tensor.h\"\n  #  include \"invar/nn/module.h\"\n";
    EXPECT_EQ(lines(check_include_order("invar/ops/matmul.cpp", text)),
              (Lines{"invar/ops/matmul.cpp:3: ops/ includes invar/nn/module.h, but nn/ comes after ops/"}));
    EXPECT_TRUE(check_include_order("invar/nn/linear.cpp", text).empty());
    EXPECT_TRUE(check_include_order("invar/cli/train.cpp", text).empty());
}

TEST(IncludeOrder, LooksAtTheFirstFolderOfANestedPath) {
    EXPECT_EQ(check_include_order("invar/core/x.cu", "#include \"invar/kernels/cpu/gemm.h\"\n").size(), 1u);
    EXPECT_TRUE(check_include_order("invar/kernels/cuda/x.cu", "#include \"invar/kernels/kernels.h\"\n").empty());
}

TEST(IncludeOrder, CatchesTheWaysAroundIt) {
    EXPECT_EQ(check_include_order("invar/core/x.cpp", "#include <invar/ops/add.h>\n").size(), 1u) << "angle brackets";
    EXPECT_EQ(check_include_order("invar/core/x.cpp", "#include \"../ops/add.h\"\n").size(), 1u) << "relative path";
    EXPECT_EQ(check_include_order("invar/core/x.cpp", "#include \"invar/invar.h\"\n").size(), 1u) << "umbrella";
    EXPECT_EQ(check_include_order("invar/core/x.cpp", "#include \"invar/misc/x.h\"\n").size(), 1u) << "unknown target";
    EXPECT_EQ(check_include_order("invar/misc/x.cpp", "").size(), 1u) << "unknown folder";
}

TEST(IncludeOrder, LetsTheUmbrellaIncludeEverythingAndIgnoresComments) {
    EXPECT_TRUE(check_include_order("invar/invar.h", "#include \"invar/train/trainer.h\"\n").empty());
    EXPECT_TRUE(check_include_order("invar/core/x.h", "// #include \"invar/ops/add.h\"\n").empty());
}

TEST(HeaderRule, WantsACommentAndAGuard) {
    EXPECT_TRUE(check_header("invar/core/x.h", "// One.\n#pragma once\n").empty());
    EXPECT_EQ(lines(check_header("invar/core/x.h", "#pragma once\n")),
              (Lines{"invar/core/x.h:1: a header opens with a comment that says what it is for"}));
    EXPECT_EQ(lines(check_header("invar/core/x.cuh", "// One.\n")),
              (Lines{"invar/core/x.cuh:1: #pragma once is missing"}));
    EXPECT_EQ(check_header("invar/core/x.h", "").size(), 2u);
    EXPECT_TRUE(check_header("invar/core/x.cpp", "int x;\n").empty());
}

TEST(LengthRule, AllowsFiveHundredLinesAndNotOneMore) {
    std::string text;
    for (int i = 0; i < 500; ++i) text += "\n";
    EXPECT_TRUE(check_length("invar/core/x.cpp", text).empty());
    EXPECT_EQ(check_length("invar/core/x.cpp", text + "int x;").size(), 1u);
}

TEST(DefinedTypes, AreThoseThatOtherFilesCanSee) {
    const char* text =
        "namespace invar {\n"
        "class Later;\nstruct One {\n    struct Inner {};\n};\n"
        "namespace {\nstruct Hidden {};\n}\n"
        "template <class T>\nclass Two final : public One {\n};\nenum class Three { a };\n"
        "struct One::Part {};\n"
        "}\nnamespace invar::cli {\nstruct Four : Base<One> {};\n// struct Told {};\n}\n";
    std::vector<std::string> names;
    for (const DefinedType& type : types_defined_in(text)) names.push_back(type.name);
    EXPECT_EQ(names, (Lines{"invar::One", "invar::Two", "invar::Three", "invar::cli::Four"}));
}

TEST(SilenceRule, CatchesEveryWayToPrintOrStop) {
    for (const char* statement :
         {"printf(\"x\");", "std::printf(\"x\");", "  fprintf(stderr, \"x\");", "std::cout << 1;", "std::cerr << 1;",
          "puts(\"x\");", "fmt::print(\"x\");", "std::exit(1);", "if (bad) exit (2);", "abort();", "std::abort();",
          "std::terminate();", "_exit(1);", "::abort();", "int x = 1'000; exit(1);"})
        EXPECT_EQ(check_silence("invar/ops/x.cpp", statement).size(), 1u) << statement;
    EXPECT_EQ(lines(check_silence("invar/io/x.cpp", "\n/* a\nb */ abort();\n")),
              (Lines{"invar/io/x.cpp:3: uses abort; the library never prints, exits or aborts"}));
}

TEST(SilenceRule, LeavesTheProgramAndInnocentCodeAlone) {
    EXPECT_TRUE(check_silence("invar/cli/main.cpp", "std::cout << 1; std::exit(0);").empty());
    for (const char* statement :
         {"// abort();", "/* printf(x) */", "fail(\"call exit(1)\");", "snprintf(b, n, f);", "scope.exit();",
          "engine->abort();", "std::atexit(f);", "on_exit(f);", "report.print(x);", "print(report);", "char c = '\"';",
          "auto s = R\"x(abort(); \" )x\";", "bool exit = false;"})
        EXPECT_TRUE(check_silence("invar/ops/x.cpp", statement).empty()) << statement;
}

TEST(SilenceRule, SurvivesSourceThatEndsInTheMiddle) {
    for (const char* text : {"\"", "'", "/*", "/", "R\"", "R\"x(", "\"\\", "'\\", "//", "/*/", ""})
        EXPECT_EQ(without_comments_and_strings(text).size(), std::string_view(text).size()) << text;
}

}  // namespace
}  // namespace invar::tree
