#!/usr/bin/env python3
"""Made the files beside it, with PyTorch 1.13 and NumPy 1.24; the tests need neither."""
import os

import numpy as np
import torch

os.chdir(os.path.dirname(os.path.abspath(__file__)))
weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0, 0.5], [0.0, 1e-6, 70000.0]]))
model = torch.nn.BatchNorm1d(2)
torch.save({"model": model.state_dict(),  # an OrderedDict with _metadata, and an integer tensor
            "weight": weight, "transposed": weight.detach().t(), "again": weight.detach(),
            "every_other": torch.arange(10.0)[2:8:2], "corner": torch.arange(12.0).reshape(3, 4)[1:, 1:3],
            "half": torch.tensor([1.0, 65504.0]).half(), "bf16": torch.tensor([3.0]).bfloat16(),
            "double": torch.tensor(1e300, dtype=torch.float64), "complex": torch.zeros(2, dtype=torch.complex64),
            "empty": torch.zeros(0, 3), "list": [torch.ones(1), None, True, -3, 2**70, 0.5, "text", (1, 2)],
            "epoch": 3}, "checkpoint.pt")
torch.save(torch.tensor([1.0, 2.0]), "tensor.pt")
torch.save(model, "module.pt")
torch.save(torch.ones(1).expand(5), "expanded.pt")
torch.save(torch.ones(2), "before_1_6.pt", _use_new_zipfile_serialization=False)
arrays = dict(w=np.arange(6, dtype=np.float32).reshape(2, 3), big=np.array([1.5, -2.5], dtype=">f8"),
              half=np.ones(4, np.float16).T, i=np.arange(3), s=np.array(["a"]), c=np.zeros(1, np.complex64),
              o=np.array([None], dtype=object), empty=np.zeros((0, 2), np.float32), scalar=np.float32(7))
np.savez("stored.npz", **arrays)
np.savez_compressed("deflated.npz", **arrays)
