// Makes one source file of the cpp blocks of the documents, each in a namespace of its own and in the frame it names,
// with #line so that a compiler's complaint names the document. usage: extract SOURCE_DIR SUFFIX OUTPUT With the suffix
// .cu only frames that have such a file take part: code that must also compile for a GPU.
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "tests/docs/markdown.h"

namespace {

namespace fs = std::filesystem;
using invar::docs::Block;

// #include lines go to the top of the file, where they belong to no namespace.
void take(const std::string& line, std::string& includes, std::string& body) {
    (line.starts_with("#include") ? includes : body) += line + "\n";
    if (line.starts_with("#include")) body += "\n";  // lines keep their numbers
}

void add(const Block& block, const fs::path& frame, std::string& includes, std::string& body) {
    std::ifstream in(frame);
    if (!in) throw std::runtime_error(block.file + ": there is no frame " + frame.string());
    bool used = false;
    body += "namespace " + block.name + " {\n#line 1 \"" + frame.string() + "\"\n";
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (line.find("// BLOCK") == line.npos) {
            take(line, includes, body);
            continue;
        }
        used = true;
        body += "#line " + std::to_string(block.line) + " \"" + block.file + "\"\n";
        for (const std::string& text : block.lines) take(text, includes, body);
        body += "#line " + std::to_string(number + 1) + " \"" + frame.string() + "\"\n";
    }
    if (!used) throw std::runtime_error(frame.string() + ": no line says // BLOCK");
    body += "}  // namespace " + block.name + "\n";
}

void extract(const fs::path& root, const std::string& suffix, const fs::path& output) {
    std::string includes, body;
    for (const Block& block : invar::docs::all_blocks(root)) {
        if (block.language != "cpp") continue;
        if (!block.part_of.empty()) continue;
        if (block.frame.empty())
            throw std::runtime_error(
                block.file + ":" + std::to_string(block.line - 1) +
                ": a cpp block needs a line above it that names its frame: <!-- test: frame NAME -->");
        const fs::path frame = root / "tests/docs/frames" / (block.frame + suffix);
        if (suffix == ".cu" && !fs::exists(frame)) continue;
        add(block, frame, includes, body);
    }
    std::ofstream(output) << includes << body;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 4) throw std::runtime_error("usage: extract SOURCE_DIR SUFFIX OUTPUT");
        extract(argv[1], argv[2], argv[3]);
        return 0;
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
