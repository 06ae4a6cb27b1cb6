// TensorBoard event files: scalars by tag and step, readable by `tensorboard --logdir` with nothing else installed.
// The few protobuf fields it takes are encoded here by hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "invar/io/file.h"

namespace invar {

class EventFile {
  public:
    // Makes events.out.tfevents.<time>.<host> in `folder`. A resumed run gives the last step that counts, so that
    // TensorBoard drops what the interrupted one logged after it; records that were torn at the ends of earlier files
    // are removed, which not every reader passes over.
    explicit EventFile(const std::filesystem::path& folder, std::optional<std::int64_t> resumed_at = {});
    ~EventFile();
    EventFile(const EventFile&) = delete;
    EventFile& operator=(const EventFile&) = delete;

    void scalar(std::string_view tag, std::int64_t step, double value);
    // What was flushed can be read, whatever becomes of this process; what was synced, whatever becomes of the machine.
    void flush();
    void sync();
    const std::string& problem() const { return file_.problem(); }
    const std::filesystem::path& path() const { return file_.path(); }
    AppendFile& file() { return file_; }

  private:
    void record(std::string_view event);
    AppendFile file_;
    std::string pending_;
};

}  // namespace invar
