#include "invar/scene/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace invar::scene {

namespace {

constexpr std::array<std::string_view, 112> kSignWords = {
    "open",   "closed", "sale",    "exit",   "stop",    "bank",   "cafe",  "hotel",   "taxi",   "bus",   "rail",
    "street", "road",   "avenue",  "market", "pizza",   "coffee", "tea",   "bread",   "books",  "shoes", "city",
    "north",  "south",  "east",    "west",   "station", "line",   "gate",  "push",    "pull",   "no",    "entry",
    "keep",   "clear",  "danger",  "slow",   "school",  "zone",   "only",  "parking", "free",   "wifi",  "new",
    "best",   "price",  "offer",   "today",  "menu",    "bar",    "grill", "house",   "garden", "park",  "museum",
    "art",    "music",  "theatre", "cinema", "phone",   "repair", "keys",  "cut",     "hair",   "salon", "nails",
    "dental", "clinic", "care",    "health", "food",    "fresh",  "fruit", "fish",    "meat",   "milk",  "water",
    "juice",  "beer",   "wine",    "ice",    "cream",   "the",    "and",   "of",      "for",    "to",    "in",
    "at",     "by",     "on",      "we",     "you",     "your",   "our",   "all",     "one",    "two",   "first",
    "floor",  "level",  "lift",    "ticket", "tour",    "film",   "photo", "print",   "copy",   "lock",  "safe",
    "home",   "office"};
constexpr std::string_view kOnsets[] = {"b",  "c",  "d",  "f",  "g",  "h",  "j",  "k",  "l",  "m",  "n",  "p",
                                        "qu", "r",  "s",  "t",  "v",  "w",  "z",  "br", "ch", "cl", "dr", "fl",
                                        "gr", "pl", "pr", "sh", "st", "th", "tr", "",   "y",  "x"};
constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "a", "e", "o", "ai", "ea", "ou", "io", "ee", "y"};
constexpr std::string_view kEndings[] = {"",  "",  "",  "n",  "r",  "s",  "t",  "l",  "m",  "d",
                                         "k", "x", "g", "ng", "st", "ck", "nt", "rd", "ll", "ss"};

template <class List>
std::string_view one_of(const List& list, RandomDraws& draws) {
    return list[std::size_t(draws.below(std::int64_t(std::size(list))))];
}

std::string syllables(RandomDraws& draws) {
    std::string word;
    const std::int64_t count = 1 + draws.below(3);
    for (std::int64_t i = 0; i < count; ++i) {
        word += one_of(kOnsets, draws);
        word += one_of(kVowels, draws);
    }
    word += one_of(kEndings, draws);
    return word;
}

std::string digits(RandomDraws& draws, std::int64_t count) {
    std::string text(1, char('1' + draws.below(9)));
    while (std::int64_t(text.size()) < count) text += char('0' + draws.below(10));
    return text;
}

std::string figures(RandomDraws& draws) {
    const std::int64_t kind = draws.below(8), some = draws.below(24);
    const std::string few = digits(draws, 1 + draws.below(3)), four = digits(draws, 4);
    switch (kind) {
        case 0:
            return fmt::format("${}.{}9", few.substr(0, 2), some % 10);
        case 1:
            return fmt::format("{}-{}", 100 + some * 37, four);
        case 2:
            return fmt::format("{}:{}0", some, four[1] % 6);
        case 3:
            return few.substr(0, 2) + "%";
        case 4:
            return fmt::format("({})", four.substr(1));
        case 5:
            return char('A' + some) + few;
        case 6:
            return fmt::format("{}", 1900 + 5 * some);
        default:
            return some % 2 ? few : four;
    }
}

std::string in_case(std::string word, LetterCase letters) {
    const auto upper = [](char c) { return char(std::toupper(static_cast<unsigned char>(c))); };
    if (letters == LetterCase::upper) std::ranges::transform(word, word.begin(), upper);
    if (letters == LetterCase::title) word[0] = upper(word[0]);
    return word;
}

}  // namespace

LetterCase draw_case(RandomDraws& draws) {
    const double u = draws.uniform();
    return u < 0.45 ? LetterCase::upper : u < 0.75 ? LetterCase::title : LetterCase::lower;
}

std::string draw_word(RandomDraws& draws, LetterCase letters, std::int64_t most_letters) {
    const double kind = draws.uniform();
    std::string word;
    if (kind < 0.2)
        word = figures(draws);
    else if (kind < 0.55)
        word = in_case(std::string(one_of(kSignWords, draws)), letters);
    else
        word = in_case(syllables(draws), letters);
    if (draws.chance(0.04)) word += one_of(std::array<std::string_view, 4>{"!", ".", ",", "?"}, draws);
    if (std::int64_t(word.size()) > most_letters) word.resize(std::size_t(std::max<std::int64_t>(most_letters, 1)));
    return word;
}

std::vector<std::vector<std::string>> draw_lines(RandomDraws& draws, std::int64_t most_lines, std::int64_t most_words) {
    const LetterCase letters = draw_case(draws);
    std::vector<std::vector<std::string>> lines;
    const std::int64_t count = 1 + draws.below(std::max<std::int64_t>(most_lines, 1));
    for (std::int64_t i = 0; i < count && most_words > 0; ++i) {
        const std::int64_t words = std::min<std::int64_t>(1 + draws.below(3), most_words);
        most_words -= words;
        std::vector<std::string>& line = lines.emplace_back();
        for (std::int64_t k = 0; k < words; ++k) line.push_back(draw_word(draws, letters));
    }
    return lines;
}

}  // namespace invar::scene
