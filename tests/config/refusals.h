// What tests of the configuration share: the files that ship, files of one test, and what is refused with which words.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "invar/config/config.h"
#include "invar/core/error.h"

namespace invar {

namespace fs = std::filesystem;

inline const ConfigSources kShipped{{fs::path(INVAR_SOURCE_DIR) / "configs"}};

inline Config with(const std::vector<std::string>& overrides) {
    return load_config("", overrides, kShipped);
}

// The message of the UsageError that this must throw.
std::string refusal(auto&& call) {
    try {
        call();
    } catch (const UsageError& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "not one line: " << error.what();
        return error.what();
    }
    ADD_FAILURE() << "no UsageError was thrown";
    return "";
}
inline std::string refusal_of(const std::string& override) {
    return refusal([&] { with({override}); });
}
inline std::string refusal_of_yaml(const std::string& yaml) {
    return refusal([&] { parse_config(yaml, "my.yaml"); });
}

inline testing::AssertionResult says(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
        if (message.find(part) == std::string::npos)
            return testing::AssertionFailure() << "'" << part << "' is not in: " << message;
    return testing::AssertionSuccess();
}

// A folder of configurations for one test.
class Folder {
  public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "invar-config-XXXXXX").string();
        path_ = mkdtemp(name.data());
    }
    ~Folder() { fs::remove_all(path_); }
    fs::path write(const std::string& name, const std::string& text) const {
        fs::create_directories((path_ / name).parent_path());
        std::ofstream(path_ / name, std::ios::binary) << text;
        return path_ / name;
    }
    ConfigSources sources() const { return {{path_}}; }
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

}  // namespace invar
