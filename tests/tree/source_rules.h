// The rules of the source tree as functions from text to findings, so that each can be tried on a sample
// that breaks it as well as on the tree itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace invar::tree {

struct Finding {
    std::string file;
    int line = 0;
    std::string what;
    std::string str() const;  // "invar/core/tensor.h:12: ..."
};
using Findings = std::vector<Finding>;

// The folders of invar/ in their order: each may include itself and those before it.
extern const std::vector<std::string> kFolders;

// `path` is relative to the root of the repository ("invar/core/tensor.h"), `text` the file's content.
Findings check_include_order(std::string_view path, std::string_view text);
// A header opens with two lines of comment that say what it is for, and guards itself with #pragma once.
Findings check_header(std::string_view path, std::string_view text);
Findings check_length(std::string_view path, std::string_view text);
// The library never prints, exits or aborts; only the program, cli/, may.
Findings check_silence(std::string_view path, std::string_view text);

// A class, struct or enumeration that other files can see, "invar::Tensor": two of one name would be one to the linker,
// which keeps either one's functions for both.
struct DefinedType {
    std::string name;
    int line = 0;
};
std::vector<DefinedType> types_defined_in(std::string_view text);

// The text with comments, strings and character literals blanked out, line for line.
std::string without_comments_and_strings(std::string_view text);

}  // namespace invar::tree
