// Built outside the tree against the installed library: one FP16 product, accumulated in FP32.
#include <cstdio>

#include "invar/invar.h"

int main() {
    using namespace invar;
    const Tensor a = Tensor::from<float>({1, 2, 3, 4}, {2, 2}, Dtype::f32);
    const Autocast cast(Dtype::f16);
    const Tensor product = ops::matmul(a, a);
    std::printf("%s\n", product.str().c_str());
    return product.dtype() == Dtype::f16 && product.to_vector<double>() == std::vector<double>{7, 10, 15, 22} ? 0 : 1;
}
