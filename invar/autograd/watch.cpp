#include "invar/autograd/watch.h"

#include <utility>

#include "invar/autograd/watch_pause.h"

namespace invar {

namespace {

OpWatcher*& current_watcher() {
    thread_local OpWatcher* watcher = nullptr;
    return watcher;
}

OpWatcher*& paused_watcher() {
    thread_local OpWatcher* watcher = nullptr;
    return watcher;
}

}  // namespace

OpWatcher* OpWatcher::current() {
    return current_watcher();
}

WatchScope::WatchScope(OpWatcher* watcher) : previous_(current_watcher()) {
    current_watcher() = watcher;
}
WatchScope::~WatchScope() {
    current_watcher() = previous_;
}

PauseWatch::PauseWatch() : outer_(std::exchange(paused_watcher(), current_watcher())), none_(nullptr) {}
PauseWatch::~PauseWatch() {
    paused_watcher() = outer_;
}

ResumeWatch::ResumeWatch() : WatchScope(paused_watcher()) {}

Tensor weight_gradient(const Node& node, std::size_t i) {
    const auto* leaf = dynamic_cast<const Accumulator*>(node.inputs()[i].get());
    return leaf != nullptr ? leaf->leaf().grad() : Tensor{};
}

}  // namespace invar
