// TensorBoard event files, read: the scalars of a run by tag and step as TensorBoard shows them, whoever wrote them.
// Both forms are understood, the simple value of old writers and the tensor without dimensions of new ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace invar {

// By its name, as TensorBoard tells them.
bool is_event_file(const std::filesystem::path& path);

class EventLog {
  public:
    // The files of one run in the order of their time. A later value replaces one of the same step, and where a session
    // begins, what was logged at its step and after is dropped. Throws IoError for a record that is damaged; one that a
    // kill has torn at the end of the file is noted and left out.
    void add(std::string_view file, const std::string& source);

    using Points = std::map<std::int64_t, double>;
    const std::map<std::string, Points>& scalars() const { return scalars_; }
    const std::string& note() const { return note_; }  // which file is torn; "" where none is

  private:
    void add_event(std::string_view event, const std::string& where);
    void add_value(std::string_view value, std::int64_t step, const std::string& where);
    std::map<std::string, Points> scalars_;
    std::set<std::string> other_;  // tags that some other plug-in of TensorBoard's shows
    std::string note_;
};

}  // namespace invar
