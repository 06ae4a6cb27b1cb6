#include "invar/io/safetensors_sums.h"

#include <charconv>

#include "invar/core/error.h"
#include "invar/io/checksum.h"

namespace invar {

namespace {

// Two keys, so that a file in which one was damaged does not pass for one that never had any.
constexpr const char *kKind = "invar.checksum", *kSums = "invar.checksums";
constexpr const char* kCrc = "crc32c";
// Within a text the quotes would be escaped: this can only be the key.
constexpr std::string_view kPlace = R"("invar.checksums":")";
constexpr std::size_t kDigits = 8;

std::string digits_of(std::uint32_t sum) {
    return fmt::format("{:08x}", sum);
}

// Of the whole header, with zeros for the digits of the checksum itself; npos where another program moved them.
std::size_t place_of_own(std::string_view head) {
    const std::size_t found = head.find(kPlace);
    const bool whole = found != head.npos && found + kPlace.size() + kDigits <= head.size();
    return whole ? found + kPlace.size() : head.npos;
}

std::uint32_t sum_of_head(std::string_view head, std::size_t place) {
    const std::uint32_t before = crc32c(head.substr(0, place));
    return crc32c(head.substr(place + kDigits), crc32c(std::string(kDigits, '0'), before));
}

}  // namespace

void add_sums(Metadata& metadata, std::span<const std::uint32_t> tensors) {
    std::string all(kDigits, '0');
    for (const std::uint32_t sum : tensors) all += ' ' + digits_of(sum);
    metadata[kKind] = kCrc;
    metadata[kSums] = std::move(all);
}

void seal_head(std::string& head) {
    const std::size_t place = place_of_own(head);
    head.replace(place, kDigits, digits_of(sum_of_head(head, place)));
}

bool take_sums(std::string_view head, SafetensorsHeader& header, std::string_view source) {
    Metadata& metadata = header.metadata;
    if (!metadata.contains(kKind) && !metadata.contains(kSums)) return false;
    const std::size_t place = place_of_own(head);
    const bool same = place != head.npos && digits_of(sum_of_head(head, place)) == head.substr(place, kDigits);
    check<IoError>(same,
                   "{}: the header does not have the checksum that it states; the file is damaged or was rewritten by "
                   "another program",
                   source);
    // From here on everything is as we wrote it, unless somebody forged the checksum.
    const std::string_view sums = metadata[kSums];
    const std::size_t count = header.entries.size();
    check<IoError>(metadata[kKind] == kCrc && sums.size() == kDigits + count * (kDigits + 1),
                   "{}: its checksums are not one of the header and one of each of its {} tensors", source, count);
    for (std::size_t i = 0; i < count; ++i) {
        const char* digits = sums.data() + (i + 1) * (kDigits + 1);
        std::uint32_t sum = 0;
        const auto [end, error] = std::from_chars(digits, digits + kDigits, sum, 16);
        check<IoError>(error == std::errc() && end == digits + kDigits, "{}: the checksum of tensor {} is no number",
                       source, Quoted{header.entries[i].name});
        header.entries[i].crc32c = sum;
    }
    metadata.erase(kKind);
    metadata.erase(kSums);
    return true;
}

}  // namespace invar
