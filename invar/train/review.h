// What a task says and shows of a model beside its metrics, and the circumstances under which a model is judged.
#pragma once

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/data/loader.h"
#include "invar/kernels/devices.h"
#include "invar/tasks/task.h"

namespace invar {

// While it lives, the model is in evaluation mode and computes in this precision, without gradients.
class EvaluationScope {
  public:
    EvaluationScope(Module& model, const Precision& precision)
        : cast_(precision),
          tf32_(precision.kind == Precision::Kind::tf32),
          model_(model),
          was_training_(model.training()) {
        model.eval();
    }
    ~EvaluationScope() { model_.train(was_training_); }
    EvaluationScope(const EvaluationScope&) = delete;
    EvaluationScope& operator=(const EvaluationScope&) = delete;

  private:
    NoGrad no_grad_;
    Autocast cast_;
    Tf32Scope tf32_;
    Module& model_;
    bool was_training_;
};

// What the task remarks on the model from these data.
std::vector<Remark> remarks_on(const Task& task, Module& model, Loader& data, const Precision& precision);

// What the task shows of at most so many samples, spread over the data.
std::vector<Image> pictures_of(const Task& task, Module& model, const Loader& data, const Precision& precision,
                               std::int64_t most = 4);

}  // namespace invar
