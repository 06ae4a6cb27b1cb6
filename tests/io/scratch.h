// What the tests of io/ share: a folder of their own that goes away with them, and messages of errors as values.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/error.h"

namespace invar {

class Scratch {
  public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "invar_io_XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
    const std::filesystem::path& path() const { return path_; }
    // Names of everything in the folder, hidden files included.
    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(path_))
            names.push_back(entry.path().filename().string());
        return names;
    }

  private:
    std::filesystem::path path_;
};

inline void put(const std::filesystem::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The message of the E that `action` throws; anything else fails the test.
template <class E, class F>
std::string message_of(F&& action) {
    try {
        action();
    } catch (const E& error) {
        const std::string text = error.what();
        EXPECT_EQ(text.find('\n'), text.npos) << "more than one line: " << text;
        return text;
    } catch (const std::exception& error) {
        ADD_FAILURE() << "threw something else: " << error.what();
        return "";
    }
    ADD_FAILURE() << "threw nothing";
    return "";
}

inline bool has(std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
}

}  // namespace invar
