// Tasks by name: each is registered with its keys and with what makes it from the data and the model that were chosen.
#pragma once

#include "invar/config/config.h"
#include "invar/tasks/parts.h"
#include "invar/tasks/task.h"

namespace invar {

using TaskMaker = std::function<std::shared_ptr<const Task>(const void* options, const TaskParts& parts)>;

// For an object at namespace scope, in the file that defines the task. A task that brings its own data and model leaves
// the parts alone.
template <class Options>
struct RegisterTask {
    template <class Make>  // std::shared_ptr<const Task>(const Options&, const TaskParts&)
    RegisterTask(std::string name, std::string about, Make make, std::vector<Key> keys = {}) noexcept {
        register_part<Options>("task", std::move(name), std::move(about), std::move(keys),
                               TaskMaker([make](const void* options, const TaskParts& parts) {
                                   return make(*static_cast<const Options*>(options), parts);
                               }));
    }
};

// What a configuration trains.
std::shared_ptr<const Task> make_task(const Config& config);

}  // namespace invar
