// HostSide: the host's part in work that a device records and repeats. While the work is recorded, whoever uses a value
// of the host that becomes fixed in it says so, and how to look again; and whoever keeps books on the host says what
// has to be done again at each replay. So nobody has to list what a recording rests on.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace invar {

class HostSide {
  public:
    // Inside it, what is said on this thread belongs to this one.
    class Scope {
      public:
        explicit Scope(HostSide& side);
        ~Scope();
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        HostSide* previous_;
    };
    // nullptr where nothing is being recorded.
    static HostSide* current();

    // The work was given what `read` returns now. Whatever `read` looks at must outlive this object.
    template <class Read>
    void depends_on(Read read) {
        checks_.push_back([read, before = read()] { return read() == before; });
    }
    // Also to be done when the work is replayed.
    void repeat(std::function<void()> action) { actions_.push_back(std::move(action)); }
    // To be done where the recording fails.
    void undo(std::function<void()> action) { undos_.push_back(std::move(action)); }

    // Whether the work would still be given the same.
    bool unchanged() const;
    void replay() const;
    void roll_back() const;

  private:
    std::vector<std::function<bool()>> checks_;
    std::vector<std::function<void()>> actions_, undos_;
};

}  // namespace invar
