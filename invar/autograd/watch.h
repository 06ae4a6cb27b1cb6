// OpWatcher: told of every operation as it runs, forward and backward, on the thread it is installed on. It is what
// diagnosis is made of; where none is installed an op pays one test of a pointer.
#pragma once

#include <functional>
#include <string>

#include "invar/autograd/node.h"

namespace invar {

// An operation that has just run forward.
struct ForwardRun {
    const char* op;
    const std::string& module;  // the path of the module that ran it; "" in the model itself
    const Tensors& inputs;      // as the op saw them, after autocast; some may be undefined
    const Tensor& result;       // its node() is nullptr where nothing is recorded
    // The same op on other inputs, recorded and cast as the surroundings of that call say. May outlive this struct.
    std::function<Tensor(const Tensors&)> again;
};

// A node that has just run backward.
struct BackwardRun {
    const Node& node;
    const Tensor& incoming;
    // One an input; undefined where none is wanted, and where the node has added it into the leaf itself (see
    // weight_gradient).
    const Tensors& outgoing;
};

// The gradient so far of the leaf that is input i, undefined where that is no leaf: what went past `outgoing`.
Tensor weight_gradient(const Node& node, std::size_t i);

// Overrides run with no watcher installed, so that they may use ops themselves.
class OpWatcher {
  public:
    virtual ~OpWatcher() = default;
    virtual void forward(const ForwardRun&) {}
    virtual void backward(const BackwardRun&) {}
    static OpWatcher* current();
};

// Installs a watcher on this thread (nullptr: none) until the end of a scope.
class WatchScope {
  public:
    explicit WatchScope(OpWatcher* watcher);
    ~WatchScope();
    WatchScope(const WatchScope&) = delete;
    WatchScope& operator=(const WatchScope&) = delete;

  private:
    OpWatcher* previous_;
};

}  // namespace invar
