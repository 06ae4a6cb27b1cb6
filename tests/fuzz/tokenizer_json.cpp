// Any bytes as a tokenizer.json: a tokenizer that encodes and decodes within its vocabulary, or an invar::Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "invar/core/error.h"
#include "invar/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace invar;
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    try {
        const text::Tokenizer tokenizer = text::parse_tokenizer(json, "fuzz");
        // A text with something for everybody, and the file itself.
        for (const std::string_view text :
             {std::string_view("The low\xff e\xcc\x81 \n\n 123 \xe6\x97\xa5<|endoftext|>'s aaaa "),
              json.substr(0, 4096)}) {
            const std::vector<text::TokenId> ids = tokenizer.encode(text);
            for (const text::TokenId id : ids)
                if (id >= tokenizer.vocabulary_size()) std::abort();
            tokenizer.decode(ids);
            // Where a part is accepted, it is the beginning of the whole.
            text::WordCache cache;
            const std::size_t cut = text.size() / 2;
            const auto part = tokenizer.encode_part(text.substr(0, cut), text.substr(cut), true, cache);
            if (!part) continue;
            std::vector<text::TokenId> both = *part;
            const std::vector<text::TokenId> rest = *tokenizer.encode_part(text.substr(cut), "", false, cache);
            both.insert(both.end(), rest.begin(), rest.end());
            if (cut < text.size() && both != ids) std::abort();
        }
    } catch (const Error&) {
    }
    return 0;
}
