#include "invar/text/tokenize_files.h"

namespace invar::text {

namespace {

struct TokensOfPart : PartResult {
    std::vector<TokenId> tokens;
};

}  // namespace

bool tokenize_files(const Tokenizer& tokenizer, const std::vector<std::filesystem::path>& files,
                    const Separator& separator, const FilePartsOptions& options, TokenWriter& out,
                    std::vector<TokenizedFile>& done) {
    done.assign(files.size(), {});
    std::vector<WordCache> caches(static_cast<std::size_t>(thread_count(options)));
    return work_on_files(
        files, options,
        [&](const FilePart& part, int thread) -> std::unique_ptr<PartResult> {
            auto tokens = tokenizer.encode_part(part.text, part.next, part.begins_file, caches[std::size_t(thread)]);
            if (!tokens) return nullptr;
            auto result = std::make_unique<TokensOfPart>();
            result->tokens = std::move(*tokens);
            return result;
        },
        [&](const FilePart& part, PartResult& result) {
            std::vector<TokenId>& tokens = static_cast<TokensOfPart&>(result).tokens;
            const bool separated = part.ends_file && (separator.behind_last || part.file + 1 < files.size());
            if (separated && separator.token) tokens.push_back(*separator.token);
            out.write(tokens);
            done[part.file].bytes += part.text.size();
            done[part.file].tokens += tokens.size();
        });
}

}  // namespace invar::text
