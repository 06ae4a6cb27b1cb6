// Alerts: what a run warns of, once each. An alert that was raised stays silent until what it warned of has been gone
// for a while, and each time for longer.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace invar {

struct Alert {
    std::int64_t step = 0, epoch = 0;
    std::string kind;   // "gradient_large"
    std::string where;  // a module or parameter; "" for the run as a whole
    double value = 0.0;
    std::string message;  // one line, for people
};

class Alerts {
  public:
    // So many looks in a row must find nothing until the same alert is news again; twice as many after the second time.
    explicit Alerts(int calm = 20) : calm_(calm) {}

    // Whether this is news.
    bool raise(const std::string& kind, const std::string& where = "");
    // It was looked for and is not there.
    void clear(const std::string& kind, const std::string& where = "");

    // For checkpoints: a run that goes on does not repeat what was said.
    nlohmann::json state() const;
    void restore(const nlohmann::json& state);

  private:
    int calm_;
    struct Said {
        int times = 0;
        std::int64_t calm = 0;  // looks in a row that have found nothing since
        bool silent = false;
    };
    std::map<std::string, Said> said_;
};

}  // namespace invar
