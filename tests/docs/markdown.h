// The fenced blocks of a Markdown file, with the comments right above each that say how it is tested.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace invar::docs {

struct Block {
    std::string name;  // README_2: the second block of README.md
    std::string file;
    int line = 0;  // of its first line of text
    std::string language;
    std::vector<std::string> lines;

    // From <!-- test: KEY VALUE --> above the fence:
    std::string frame;               // of a cpp block: the file of tests/docs/frames that it is compiled in
    std::vector<std::string> after;  // of an sh block: commands that come first
    std::string part_of;             // a file of this tree that holds the block as it is, and is tested itself
    std::string skip;                // why it is not run

    std::string text() const;
};

std::vector<Block> blocks_of(const std::filesystem::path& file);

// README.md and what lies below docs/, in order of their names.
std::vector<std::filesystem::path> documents(const std::filesystem::path& root);
std::vector<Block> all_blocks(const std::filesystem::path& root);

}  // namespace invar::docs
