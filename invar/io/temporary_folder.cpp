#include "invar/io/temporary_folder.h"

#include <stdlib.h>

#include <string>
#include <system_error>

#include "invar/core/error.h"

namespace invar {

TemporaryFolder::TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "invar_XXXXXX").string();
    check<IoError>(::mkdtemp(name.data()) != nullptr, "cannot make a folder in {}; is it writable?",
                   std::filesystem::temp_directory_path().string());
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace invar
