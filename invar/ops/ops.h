// Every operation, in one include.
#pragma once

#include "invar/ops/cast.h"
#include "invar/ops/checkpoint.h"
#include "invar/ops/conv.h"
#include "invar/ops/creation.h"
#include "invar/ops/dropout.h"
#include "invar/ops/indexing.h"
#include "invar/ops/losses.h"
#include "invar/ops/matmul.h"
#include "invar/ops/norm.h"
#include "invar/ops/pointwise.h"
#include "invar/ops/pool.h"
#include "invar/ops/reduce.h"
#include "invar/ops/shape.h"
#include "invar/ops/softmax.h"
#include "invar/ops/to.h"
#include "invar/ops/upsample.h"
