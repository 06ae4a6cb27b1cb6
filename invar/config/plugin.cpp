#include "invar/config/plugin.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "invar/config/part.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/version.h"
#include "invar/io/file.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxBytes = std::size_t(1) << 30;

struct Loaded {
    std::mutex mutex;
    std::vector<std::string> files;
};

Loaded& loaded() {
    static Loaded loaded;
    return loaded;
}

// The version that a plug-in was built for; "" where the file is none.
std::string version_in(const std::string& bytes) {
    const std::string mark = INVAR_PLUGIN_MARK;
    const std::size_t at = bytes.find(mark);
    if (at == bytes.npos) return "";
    const std::size_t begin = at + mark.size(), end = bytes.find('\0', begin);
    return printable(bytes.substr(begin, std::min<std::size_t>(end - begin, 32)));
}

// Whether a file is as long as its own header says: the system's loader would die of one that was cut off.
bool is_whole_library(const std::string& bytes) {
    Elf64_Ehdr header{};
    if (bytes.size() < sizeof(header)) return false;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const bool is_elf = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64;
    return is_elf && header.e_shoff + std::uint64_t(header.e_shnum) * header.e_shentsize <= bytes.size();
}

// Other people's code, which may throw anything.
template <class Code>
auto guarded(const Code& code) {
    try {
        return code();
    } catch (const std::exception& fault) {
        fail<UsageError>("threw when it was loaded: {}", printable(fault.what()));
    } catch (...) {
        fail<UsageError>("threw when it was loaded, and did not say what");
    }
}

// Its registrations, then what it does itself.
void start(const fs::path& file) {
    const std::size_t before = parts_registered();
    // It is declared not to throw, and yet its initialisers may: called so, the compiler does not count on it.
    void* (*volatile const open)(const char*, int) = ::dlopen;
    void* const library = guarded([&] { return open(file.c_str(), RTLD_NOW | RTLD_LOCAL); });
    if (library == nullptr) {
        const char* why = ::dlerror();
        fail<UsageError>("cannot be loaded: {}", why != nullptr ? why : "no reason was given");
    }
    const auto run = reinterpret_cast<void (*)()>(::dlsym(library, "invar_plugin_start"));
    check<UsageError>(run != nullptr, "has no entry point; put INVAR_PLUGIN {{}} into one of its files");
    guarded([&] { run(); });
    check_registered();
    check<UsageError>(parts_registered() > before,
                      "registers nothing with this program; is it linked with another copy of Invar?");
}

}  // namespace

std::vector<std::string> loaded_plugins() {
    const std::lock_guard lock(loaded().mutex);
    return loaded().files;
}

void load_plugin(const std::string& name, const std::string& origin) {
    const std::lock_guard lock(loaded().mutex);
    std::vector<std::string>& files = loaded().files;
    std::error_code error;
    const fs::path file = fs::canonical(name, error);
    const auto same_name = [&](const std::string& other) {
        return fs::path(other).filename() == fs::path(name).filename();
    };
    if (error && std::ranges::any_of(files, same_name)) return;
    check<UsageError>(!error && fs::is_regular_file(file, error), "{}: there is no plug-in {}", origin,
                      printable(name));
    if (std::ranges::find(files, file.string()) != files.end()) return;
    try {
        const std::string bytes = read_file(file, kMaxBytes), version = version_in(bytes);
        check<UsageError>(!version.empty(), "is no plug-in of Invar; put INVAR_PLUGIN {{}} into one of its files");
        check<UsageError>(is_whole_library(bytes), "is no whole shared library; build or copy it again");
        check<UsageError>(version == INVAR_VERSION, "was built for Invar {}, and this is {}; build it again", version,
                          INVAR_VERSION);
        start(file);
    } catch (const Error& fault) {
        fail<UsageError>("{}: plug-in {}: {}", origin, printable(name), fault.what());
    }
    files.push_back(file.string());
}

}  // namespace invar
