#include "invar/report/pictures.h"

#include <fmt/format.h>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/train/run_folder.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kMostBytes = 4 << 20;  // somebody may have put another file there
constexpr std::size_t kMostRows = 16;

std::string read_picture(const fs::path& file) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return "";
    try {
        return read_file(file, kMostBytes);
    } catch (const Error&) {
        return "";
    }
}

}  // namespace

std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const auto at = [&](std::size_t j) { return j < bytes.size() ? std::uint32_t(std::uint8_t(bytes[j])) : 0u; };
        const std::uint32_t three = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
        for (std::size_t digit = 0; digit < 4; ++digit)
            text += i + digit > bytes.size() ? '=' : kDigits[three >> (18 - 6 * digit) & 63];
    }
    return text;
}

std::vector<PictureRow> picture_rows(const Comparison& c) {
    std::vector<PictureRow> rows;
    for (std::size_t number = 1; number <= kMostRows; ++number) {
        PictureRow row;
        const auto add = [&](const Arm& arm) {
            if (arm.runs.empty() || arm.runs.front().folder.empty()) return;
            const fs::path folder = RunFolder::pictures_of(arm.runs.front().folder);
            const std::string bytes = read_picture(folder / fmt::format("{}.jpg", number));
            if (!bytes.empty()) row.shown.push_back({arm.name, "data:image/jpeg;base64," + base64(bytes)});
        };
        add(c.baseline);
        for (const Arm& arm : c.candidates) add(arm);
        if (row.shown.empty()) break;
        rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace invar
