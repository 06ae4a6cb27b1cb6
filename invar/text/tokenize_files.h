// Text files to one file of tokens, on all cores, whatever their size: the same tokens as each file would give whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "invar/text/file_parts.h"
#include "invar/text/token_file.h"
#include "invar/text/tokenizer.h"

namespace invar::text {

struct TokenizedFile {
    std::uint64_t bytes = 0, tokens = 0;  // a token that separates it from the next counts with it
};

// Put behind each file but the last, or behind all.
struct Separator {
    std::optional<TokenId> token;
    bool behind_last = false;
};

// Appends the tokens of all files to `out`, and to `done` what became of each. False where progress has stopped it.
bool tokenize_files(const Tokenizer& tokenizer, const std::vector<std::filesystem::path>& files,
                    const Separator& separator, const FilePartsOptions& options, TokenWriter& out,
                    std::vector<TokenizedFile>& done);

}  // namespace invar::text
