// The whole library in one include. Folders are listed in reading order; each uses only those above it.
#pragma once

#include "invar/core/error.h"
#include "invar/core/format_info.h"
#include "invar/core/rng.h"
#include "invar/core/tensor.h"

#include "invar/io/checkpoint.h"
#include "invar/io/safetensors.h"

#include "invar/autograd/node.h"

#include "invar/amp/autocast.h"
#include "invar/amp/precision.h"

#include "invar/ops/apply.h"
#include "invar/ops/ops.h"

#include "invar/nn/layers.h"
#include "invar/nn/module.h"

#include "invar/optim/grad_scaler.h"
#include "invar/optim/optimizer.h"

#include "invar/models/models.h"

#include "invar/data/loader.h"

#include "invar/train/config.h"
#include "invar/train/step.h"
#include "invar/train/trainer.h"
