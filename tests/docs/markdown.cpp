#include "tests/docs/markdown.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace invar::docs {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFence = "```";
constexpr std::string_view kOpen = "<!-- test: ", kClose = " -->";

void read_comment(std::string_view line, Block& block, const std::string& where) {
    const std::string_view inside = line.substr(kOpen.size(), line.size() - kOpen.size() - kClose.size());
    const std::size_t space = std::min(inside.find(' '), inside.size());
    const std::string_view key = inside.substr(0, space);
    const std::string value(inside.substr(std::min(space + 1, inside.size())));
    if (key == "frame")
        block.frame = value;
    else if (key == "after")
        block.after.push_back(value);
    else if (key == "file")
        block.part_of = value;
    else if (key == "skip")
        block.skip = value;
    else
        throw std::runtime_error(where + ": frame, after, file or skip, not '" + std::string(inside) + "'");
    if (value.empty()) throw std::runtime_error(where + ": '" + std::string(key) + "' says nothing");
}

}  // namespace

std::string Block::text() const {
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
}

std::vector<Block> blocks_of(const fs::path& file) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error(file.string() + ": cannot be read");
    std::vector<Block> blocks;
    Block next;
    bool inside = false;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (line.starts_with(kFence)) {
            inside = !inside;
            if (inside) {
                next.name = file.stem().string() + "_" + std::to_string(blocks.size() + 1);
                next.file = file.filename().string();
                next.line = number + 1;
                next.language = line.substr(kFence.size());
            } else {
                blocks.push_back(std::move(next));
                next = {};
            }
        } else if (inside) {
            next.lines.push_back(line);
        } else if (line.starts_with(kOpen) && line.ends_with(kClose)) {
            read_comment(line, next, file.string() + ":" + std::to_string(number));
        } else if (!line.empty()) {
            next = {};  // a comment counts for the block right below it
        }
    }
    if (inside) throw std::runtime_error(file.string() + ": the last block has no end");
    return blocks;
}

std::vector<fs::path> documents(const fs::path& root) {
    std::vector<fs::path> found = {root / "README.md"};
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / "docs"))
        if (entry.path().extension() == ".md") found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<Block> all_blocks(const fs::path& root) {
    std::vector<Block> all;
    for (const fs::path& file : documents(root))
        for (Block& block : blocks_of(file)) all.push_back(std::move(block));
    return all;
}

}  // namespace invar::docs
