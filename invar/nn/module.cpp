#include "invar/nn/module.h"

#include <cxxabi.h>
#include <fnmatch.h>

#include <cstdlib>
#include <typeinfo>
#include <utility>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/host_side.h"
#include "invar/core/rng.h"
#include "invar/core/suggest.h"
#include "invar/kernels/kernels.h"
#include "invar/nn/mismatch.h"
#include "invar/nn/module_watch.h"
#include "invar/ops/checkpoint.h"
#include "invar/ops/to.h"

namespace invar {

namespace {

std::string joined(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
}

// A recording of what the module does holds these as they are now.
void note_reads(const Module& module) {
    if (HostSide* const recorded = HostSide::current(); recorded != nullptr)
        recorded->depends_on([&module] { return std::pair(module.training(), module.precision()); });
}

// At most a few names, so that an error stays one line.
std::string listed(const std::vector<std::string>& names) {
    constexpr std::size_t kShown = 4;
    const auto end = names.begin() + std::ptrdiff_t(std::min(names.size(), kShown));
    std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
    return names.size() > kShown ? fmt::format("{} and {} more", text, names.size() - kShown) : text;
}

std::string type_name(const Module& module) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status), std::free);
    return status == 0 ? name.get() : typeid(module).name();
}

Tensor copied(const Tensor& value) {
    Tensor copy = Tensor::empty_like(value);
    kernels_for(copy.device()).copy(value.view(), copy.view());
    return copy;
}

// Leaves the default generator as it was.
class KeepRandom {
  public:
    KeepRandom() : before_(default_generator().state()) {}
    ~KeepRandom() { default_generator().set_state(before_); }
    KeepRandom(const KeepRandom&) = delete;
    KeepRandom& operator=(const KeepRandom&) = delete;

  private:
    RngState before_;
};

const ModuleWatch::See*& watching() {
    thread_local const ModuleWatch::See* see = nullptr;
    return see;
}

}  // namespace

ModuleWatch::ModuleWatch(See see) : see_(std::move(see)), previous_(watching()) {
    watching() = &see_;
}
ModuleWatch::~ModuleWatch() {
    watching() = previous_;
}
const ModuleWatch::See* ModuleWatch::current() {
    return watching();
}

Tensor Module::forward(const Tensor& x) {
    Tensors results = forward(Tensors{x});
    check(results.size() == 1, "{} has {} results, where one was asked for; call it with a list of tensors",
          ModuleScope::path().empty() ? "the model" : ModuleScope::path(), results.size());
    return results[0];
}

// A module that overrides neither would end here again and again.
Tensors Module::forward(const Tensors& inputs) {
    const std::string name = ModuleScope::path().empty() ? "the model" : ModuleScope::path();
    check(inputs.size() == 1, "{} takes one tensor and was given {}", name, inputs.size());
    thread_local const Module* trying = nullptr;
    check(trying != this, "{} cannot be called: it has no forward()", name);
    const Module* const outer = std::exchange(trying, this);
    struct Leave {
        const Module* outer;
        ~Leave() { trying = outer; }
    } const leave{outer};
    return {forward(inputs[0])};
}

std::string Module::name_from_caller() const {
    if (parent_ == nullptr || parent_->parent_ == nullptr) return name_;
    std::string path = name_;
    for (const Module* above = parent_; above->parent_ != nullptr; above = above->parent_)
        path = above->name_ + "." + path;
    const std::string& caller = ModuleScope::path();
    if (caller.empty()) return path;
    const bool below = path.size() > caller.size() && path.starts_with(caller) && path[caller.size()] == '.';
    return below ? path.substr(caller.size() + 1) : name_;
}

Tensor Module::operator()(const Tensor& x) {
    note_reads(*this);
    const ModuleScope scope(name_from_caller());
    std::optional<Autocast> cast;
    if (precision_) cast.emplace(*precision_);
    const bool again = training_ && GradMode::recording();
    if (again && recompute_ == Recompute::block)
        return ops::checkpoint([this](const Tensor& in) { return forward(in); }, x);
    const LightRecompute light(LightRecompute::on() || (again && recompute_ == Recompute::light));
    Tensor result = forward(x);
    if (const ModuleWatch::See* const see = watching(); see != nullptr && !parameters_.empty())
        (*see)(ModuleScope::path(), result);
    return result;
}

Tensors Module::operator()(const Tensors& inputs) {
    note_reads(*this);
    const ModuleScope scope(name_from_caller());
    std::optional<Autocast> cast;
    if (precision_) cast.emplace(*precision_);
    const bool again = training_ && GradMode::recording();
    if (again && recompute_ == Recompute::block)
        return ops::checkpoint([this](const Tensors& in) { return forward(in); }, inputs);
    const LightRecompute light(LightRecompute::on() || (again && recompute_ == Recompute::light));
    Tensors results = forward(inputs);
    if (const ModuleWatch::See* const see = watching(); see != nullptr && !parameters_.empty())
        for (const Tensor& result : results) (*see)(ModuleScope::path(), result);
    return results;
}

void Module::visit(const std::string& path, const std::function<void(const std::string&, Module&)>& f) {
    f(path, *this);
    for (Child& child : children_) child.module->visit(joined(path, child.name), f);
}

void Module::train(bool on) {
    visit("", [on](const std::string&, Module& module) { module.training_ = on; });
}

std::vector<Parameter*> Module::parameters() {
    std::vector<Parameter*> all;
    visit("", [&](const std::string& path, Module& module) {
        bool own_precision = false;
        for (const Module* around = &module; around != nullptr; around = around->parent_)
            own_precision = own_precision || around->precision_;
        for (auto& [name, parameter] : module.parameters_) {
            parameter->name = joined(path, name);
            parameter->precision_of_its_own = own_precision;
            all.push_back(parameter.get());
        }
    });
    return all;
}

std::int64_t Module::parameter_count() {
    std::int64_t count = 0;
    for (const Parameter* parameter : parameters()) count += parameter->value.numel();
    return count;
}

std::vector<std::pair<std::string, Tensor*>> Module::buffers() {
    std::vector<std::pair<std::string, Tensor*>> all;
    visit("", [&](const std::string& path, Module& module) {
        for (auto& [name, buffer] : module.buffers_) all.emplace_back(joined(path, name), buffer.get());
    });
    return all;
}

std::vector<std::pair<std::string, Module*>> Module::modules() {
    std::vector<std::pair<std::string, Module*>> all;
    visit("", [&](const std::string& path, Module& module) { all.emplace_back(path, &module); });
    return all;
}

Module& Module::get_submodule(const std::string& path) {
    std::vector<std::string> paths;
    for (const auto& [found, module] : modules()) {
        if (found == path) return *module;
        paths.push_back(found);
    }
    fail<UsageError>("there is no module '{}'{}; this model has {}", path, did_you_mean(path, paths),
                     listed({paths.begin() + 1, paths.end()}));
}

bool matches_parameter(const std::string& pattern, const std::string& parameter) {
    for (std::size_t end = parameter.find('.');; end = parameter.find('.', end + 1)) {
        if (fnmatch(pattern.c_str(), parameter.substr(0, end).c_str(), 0) == 0) return true;
        if (end == std::string::npos) return false;
    }
}

int Module::freeze(const std::string& pattern, bool frozen) {
    int count = 0;
    std::vector<std::string> all;
    for (Parameter* parameter : parameters()) {
        all.push_back(parameter->name);
        if (!matches_parameter(pattern, parameter->name)) continue;
        parameter->value.set_requires_grad(!frozen);
        ++count;
    }
    check<UsageError>(count > 0, "freeze: no parameter matches '{}'; this model has {}", pattern, listed(all));
    return count;
}

void Module::to(Device device) {
    const NoGrad no_grad;
    const PurposeScope purpose(Purpose::weights);
    for (Parameter* parameter : parameters()) {
        Tensor& value = parameter->value;
        if (value.device() == device) continue;
        check<UsageError>(!value.grad() && !value.grad_forgotten() && !value.shadow(),
                          "{} has a gradient already: move a model before its optimizer is made", parameter->name);
        value = ops::to(value, device).set_requires_grad(value.requires_grad());
    }
    buffers_to(device);
}

void Module::buffers_to(Device device) {
    const NoGrad no_grad;
    const PurposeScope purpose(Purpose::weights);
    visit("", [&](const std::string&, Module& module) {
        for (auto& [name, buffer] : module.buffers_) *buffer = ops::to(*buffer, device);
    });
}

std::vector<Module*> Module::checkpoint_blocks() {
    std::vector<Module*> blocks;
    for (Child& child : children_) blocks.push_back(child.module.get());
    return blocks;
}

std::unique_ptr<Module> Module::new_instance() const {
    fail<UsageError>("clone: {} does not say how another one is made; override new_instance()", type_name(*this));
}

std::unique_ptr<Module> Module::clone() {
    const KeepRandom keep;  // its first weights are drawn only to be overwritten
    std::unique_ptr<Module> copy = maker_ ? maker_() : new_instance();
    const NoGrad no_grad;
    const PurposeScope purpose(Purpose::weights);
    const auto ours = modules(), theirs = copy->modules();
    bool alike = ours.size() == theirs.size();
    for (std::size_t i = 0; alike && i < ours.size(); ++i) {
        Module &from = *ours[i].second, &to = *theirs[i].second;
        alike = ours[i].first == theirs[i].first && typeid(from) == typeid(to) &&
                from.parameters_.size() == to.parameters_.size() && from.buffers_.size() == to.buffers_.size();
        if (!alike) break;
        to.training_ = from.training_;
        to.recompute_ = from.recompute_;
        to.precision_ = from.precision_;
        for (std::size_t p = 0; p < from.parameters_.size(); ++p) {
            const Parameter& parameter = *from.parameters_[p].second;
            to.parameters_[p].second->value =
                copied(parameter.whole()).set_requires_grad(parameter.value.requires_grad());
            to.parameters_[p].second->layout = parameter.layout;
        }
        for (std::size_t b = 0; b < from.buffers_.size(); ++b)
            *to.buffers_[b].second = copied(*from.buffers_[b].second);
    }
    check<UsageError>(alike, "clone: new_instance() of {} makes a module that differs from it, {}; override it",
                      type_name(*this), type_name(*copy));
    return copy;
}

StateDict Module::state_dict() {
    StateDict state;
    for (const Parameter* parameter : parameters()) state.emplace(parameter->name, parameter->to_file());
    visit("", [&](const std::string& path, Module& module) {
        for (auto& [name, buffer] : module.buffers_) {
            state.emplace(joined(path, name), copied(*buffer).on_host());
        }
    });
    return state;
}

std::map<std::string, Module::StateEntry> Module::state_entries() {
    std::map<std::string, StateEntry> entries;
    for (const Parameter* parameter : parameters())
        entries.emplace(parameter->name,
                        StateEntry{file_shape_of(parameter->value, parameter->layout), parameter->value.dtype()});
    visit("", [&](const std::string& path, Module& module) {
        for (auto& [name, buffer] : module.buffers_)
            entries.emplace(joined(path, name), StateEntry{buffer->shape(), buffer->dtype()});
    });
    return entries;
}

void Module::load_state_dict(const StateDict& state, bool strict) {
    WeightMismatch mismatch;
    const std::map<std::string, StateEntry> own = state_entries();
    for (const auto& [name, entry] : own) {
        const auto found = state.find(name);
        if (found == state.end() && strict) mismatch.missing.push_back(name);
        if (found != state.end() && found->second.shape() != entry.shape)
            mismatch.add_misshapen(name, found->second.shape(), entry.shape);
        if (found != state.end() && is_floating(entry.dtype))
            check(is_floating(found->second.dtype()), "{} is of {}, and weights are of floating-point numbers", name,
                  name_of(found->second.dtype()));
    }
    for (const auto& [name, tensor] : state)
        if (strict && !own.contains(name)) mismatch.unexpected.push_back(name);
    check(mismatch.empty(), "{}", mismatch.str());  // nothing is written until everything is known to fit
    for (Parameter* parameter : parameters())
        if (const auto found = state.find(parameter->name); found != state.end()) parameter->from_file(found->second);
    visit("", [&](const std::string& path, Module& module) {
        for (auto& [name, buffer] : module.buffers_) {
            const auto found = state.find(joined(path, name));
            if (found == state.end()) continue;
            kernels_for(buffer->device()).copy(ops::to(found->second, buffer->device()).view(), buffer->view());
            buffer->bump_version();
        }
    });
}

// Two things of one name would be one in a file of weights.
void Module::check_free(const std::string& name) const {
    check<UsageError>(!name.empty() && name.find('.') == name.npos,
                      "what belongs to a module needs a name without '.', not '{}'", name);
    const auto refuse = [&](const auto& all, const char* what) {
        for (const auto& [other, object] : all)
            check<UsageError>(other != name, "there is a {} '{}' already; names tell a module's parts apart", what,
                              name);
    };
    refuse(children_, "module");
    refuse(parameters_, "parameter");
    refuse(buffers_, "buffer");
}

Module& Module::adopt(const std::string& name, std::unique_ptr<Module> child) {
    check<UsageError>(child != nullptr, "module '{}': no module was given", name);
    check_free(name);
    child->name_ = name;
    child->parent_ = this;
    children_.push_back({name, std::move(child)});
    return *children_.back().module;
}

Parameter& Module::add_parameter(const std::string& name, Tensor value, FileLayout layout) {
    check_free(name);
    value.set_requires_grad();
    parameters_.emplace_back(name, std::make_shared<Parameter>(name, std::move(value), std::move(layout)));
    return *parameters_.back().second;
}

Tensor& Module::add_buffer(const std::string& name, Tensor value) {
    check_free(name);
    buffers_.emplace_back(name, std::make_unique<Tensor>(std::move(value)));
    return *buffers_.back().second;
}

std::unique_ptr<Module> ModuleList::new_instance() const {
    auto made = std::make_unique<ModuleList>();
    for (const Module* module : modules_) made->append(module->new_instance());
    return made;
}

std::unique_ptr<Module> Sequential::new_instance() const {
    auto made = std::make_unique<Sequential>();
    for (const Module* block : blocks_) made->then(block->new_instance());
    return made;
}

Tensor Sequential::forward(const Tensor& x) {
    Tensor y = x;
    for (Module* block : blocks_) y = (*block)(y);
    return y;
}

void override_precision(Module& model, std::span<const std::pair<std::string, std::string>> overrides) {
    const auto modules = model.modules();
    for (const auto& [pattern, text] : overrides) {
        const Precision precision = Precision::parse(text);
        bool matched = false;
        for (const auto& [path, module] : modules) {
            if (path.empty() || fnmatch(pattern.c_str(), path.c_str(), 0) != 0) continue;
            module->set_precision(precision);
            matched = true;
        }
        if (matched) continue;
        std::vector<std::string> names;
        for (const auto& [path, module] : modules)
            if (!path.empty()) names.push_back(path);
        fail<UsageError>("precision_overrides: no module matches '{}'; this model has {}", pattern, listed(names));
    }
}

}  // namespace invar
