// NewFolder: a folder that is written beside its place and put there whole, so that a kill or a full disk leaves what
// was there before, and nothing that looks whole and is not.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "invar/io/descriptor.h"

namespace invar {

class NewFolder {
  public:
    // Where there is a folder already, `replaces` decides by the name of every entry whether it may go; without it only
    // an empty one may. Throws UsageError. What killed processes have left of such folders at this place is removed.
    NewFolder(std::filesystem::path place, std::function<bool(const std::string& name)> replaces = {});
    ~NewFolder();
    NewFolder(const NewFolder&) = delete;
    NewFolder& operator=(const NewFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }  // to write into until commit()
    void commit();

  private:
    void check_place() const;
    void sweep() const;
    std::filesystem::path place_, path_;
    std::function<bool(const std::string&)> replaces_;
    std::optional<Descriptor> held_;  // locked while its writer lives
    bool committed_ = false;
};

}  // namespace invar
