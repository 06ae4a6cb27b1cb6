// What Hugging Face's library made of hostile strings (golden.py), against what we make of them: the same ids, and the
// same text again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "invar/io/file.h"
#include "tests/text/families.h"

namespace invar::text {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> golden_files() {
    std::vector<fs::path> files;
    const fs::path folder = fs::path(INVAR_SOURCE_DIR) / "tests" / "text" / "golden";
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

TEST(Golden, IdsAndTextsAreThoseOfHuggingFacesLibrary) {
    const std::vector<fs::path> files = golden_files();
    if (files.empty())
        GTEST_SKIP() << "tests/text/golden/ is empty: run tests/text/golden.py where `tokenizers` is installed";
    for (const fs::path& file : files) {
        SCOPED_TRACE(file.filename().string());
        const Json golden = Json::parse(read_file(file));
        const Tokenizer tokenizer = parse_tokenizer(golden.at("tokenizer").dump(), file.filename().string());
        EXPECT_GE(golden.at("cases").size(), 60u);
        for (const Json& example : golden.at("cases")) {
            const std::string text = example.at("text");
            const Ids ids = example.at("ids").get<Ids>();
            EXPECT_EQ(tokenizer.encode(text), ids) << printable(text);
            // An added token such as "éé" that can also be read as names of bytes is decoded as those bytes by that
            // library, and lost. It is the one difference there is.
            const std::string decoded = example.at("decoded");
            const bool lost = decoded.find("\ufffd") != text.npos && text.find("\ufffd") == text.npos;
            EXPECT_EQ(tokenizer.decode(ids), lost ? normalized(text, NormalForm::nfc) : decoded) << printable(text);
        }
    }
}

}  // namespace
}  // namespace invar::text
