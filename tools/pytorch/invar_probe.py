"""Looks into a PyTorch training run, and writes down what `invar diagnose PROBE` needs to judge its precision.

with InvarProbe(model, "probe", optimizer=optimizer, scaler=scaler, every=500) as probe:
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        probe.step(loss)  # right after backward(), before the optimizer's step
        scaler.step(optimizer)
        scaler.update()

LightningProbe and HuggingFaceProbe are callbacks for those two, where they are installed. Needs torch alone: safetensors
are written here. docs/PROBE.md tells what is written, what it costs and what cannot be seen.
"""
import ctypes
import json
import math
import os
import warnings
import weakref

import torch

__all__ = ["InvarProbe"]

VERSION = 1
INDEX = "index.jsonl"
COUNTED = 1 << 16  # values of a tensor whose exponents are counted
ROOM = 1 << 22     # values that wait to be counted together
FEATURES = 32      # columns of a sample
_BINS = 256        # exponents of FP32 as stored; the last one is that of NaN and infinity
_INFINITY = 0x7F800000


def _tensors(value, prefix=""):
    """The floating tensors in nested arguments or results, with a name for each."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.layout == torch.strided and value.numel() > 0:
            yield prefix or "0", value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _tensors(part, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _tensors(part, f"{prefix}.{number}" if prefix else str(number))


def _flat(tensor):
    """All values in the order in which they lie in memory: of channels-last images, say, without a copy."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).reshape(-1)


_known_places = {}


def _places(tensor, bound):
    """Where a sample of a tensor of this shape is taken, as distances in its storage; its length there; the sample's shape."""
    shape, strides = tuple(tensor.shape) or (1,), tensor.stride() or (1,)
    if len(shape) == 1:
        shape, strides = shape + (1,), strides + (1,)
    if len(shape) >= 4:  # channels of images come last
        shape, strides = shape[:1] + shape[2:] + shape[1:2], strides[:1] + strides[2:] + strides[1:2]
    key = shape, strides, bound, tensor.device
    if key not in _known_places:
        rows, features = math.prod(shape[:-1]), shape[-1]
        columns = min(features, FEATURES)
        count = min(rows, max(1, bound // columns))
        at = torch.zeros(count, dtype=torch.int64)
        picked = torch.arange(count) * rows // count
        for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1])):
            at += picked % size * stride
            picked = torch.div(picked, size, rounding_mode="floor")
        chosen = torch.div(torch.arange(columns) * features, columns, rounding_mode="floor") * strides[-1]
        if len(_known_places) >= 1000:
            _known_places.clear()
        places = (at[:, None] + chosen[None, :]).reshape(-1)
        length = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        _known_places[key] = places.to(tensor.device), length, (count, columns)
    return _known_places[key]


def _in_range(values):
    """What is beyond FP32 counts as its largest value."""
    if values.dtype != torch.float64:
        return values
    limit = torch.finfo(torch.float32).max
    return torch.where(values.isfinite(), values.clamp(-limit, limit), values)


def _joined(parts):
    """One after the other, in FP32, on the host; parts of one device and format come over at once."""
    kinds = {}
    for number, part in enumerate(parts):
        kinds.setdefault((part.device, part.dtype), []).append(number)
    flat = [_in_range(torch.cat([parts[number] for number in numbers])).float().cpu() for numbers in kinds.values()]
    if len(flat) < 2:
        return flat[0] if flat else torch.zeros(0)
    sizes = torch.tensor([part.numel() for part in parts])
    begins, joined = sizes.cumsum(0) - sizes, torch.empty(int(sizes.sum()))
    for numbers, values in zip(kinds.values(), flat):
        shift = begins[numbers] - (sizes[numbers].cumsum(0) - sizes[numbers])
        joined[torch.repeat_interleave(shift, sizes[numbers]) + torch.arange(values.numel())] = values
    return joined


class _Counts:
    """Rows of statistics, one for each tensor that is given: how often each exponent occurs, zeros, NaN, and extremes as
    bits of FP32; and a sample of each. Of a large tensor a few kernels take the least and the largest value, in which NaN
    and infinities show, the sample, and every k-th value; a small one is copied. What they took is counted later, of many
    tensors at once: the more kernels a step has, the longer it takes."""

    def __init__(self, device, sample):
        self._buffer, self._used, self._sample = torch.empty(ROOM, device=device), 0, sample
        self._sizes, self._waiting, self._factors, self._apart, self._counted = [], [], [], [], []
        self._extremes = {}  # by row, where not all values are counted
        self.samples = []    # by row: rows by features, at most so many values at places that follow from the shape alone

    def add(self, tensor, factor):
        """The number of its row."""
        row, apart = len(self._apart), max(1, -(-tensor.numel() // COUNTED))
        while math.gcd(apart, tensor.numel()) > 1:  # else only some channels would be seen
            apart += 1
        values = _flat(tensor)[::apart]
        if self._used + values.numel() > ROOM:
            self._count()
        self._buffer[self._used:self._used + values.numel()].copy_(_in_range(values))
        places, length, shape = _places(tensor, self._sample)
        if apart == 1 and length == tensor.numel():  # from the copy
            self._waiting.append((row, self._used, places))
            self.samples.append(torch.empty(shape))
        else:
            self.samples.append(tensor.as_strided((length,), (1,)).index_select(0, places).view(shape))
        if apart > 1:
            reducible = tensor.is_cuda and tensor.dtype in (torch.float16, torch.bfloat16)
            self._extremes[row] = torch.aminmax(tensor if reducible or tensor.element_size() >= 4 else tensor.float())
        self._used += values.numel()
        self._sizes.append(values.numel())
        self._factors.append(factor)
        self._apart.append(apart)
        return row

    def _count(self):
        """What waits, which makes room."""
        rows, device = len(self._sizes), self._buffer.device
        row = torch.repeat_interleave(torch.arange(rows, device=device), torch.tensor(self._sizes, device=device))
        factors = torch.tensor(self._factors[-rows:], device=device)
        bits = (self._buffer[:self._used] * factors[row]).view(torch.int32) & 0x7FFFFFFF  # sorted as the magnitudes are
        exponents = torch.bincount(row * _BINS + (bits >> 23), minlength=rows * _BINS).view(rows, _BINS)
        zeros = torch.bincount(row[bits == 0], minlength=rows)
        nans = torch.bincount(row[bits > _INFINITY], minlength=rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scatter_reduce was in beta
            most = torch.zeros(rows, dtype=torch.int32, device=device).scatter_reduce(
                0, row, torch.where(bits < _INFINITY, bits, torch.zeros_like(bits)), "amax")
            least = torch.full_like(most, _INFINITY).scatter_reduce(
                0, row, torch.where(bits > 0, bits, torch.full_like(bits, _INFINITY)), "amin")
        columns = [part.view(rows, 1) for part in (zeros, nans, most.long(), -least.long())]
        self._counted.append(torch.cat([exponents] + columns, 1).cpu())
        if self._waiting:
            sizes = [places.numel() for _, _, places in self._waiting]
            begins = torch.tensor([at for _, at, _ in self._waiting]).repeat_interleave(torch.tensor(sizes))
            places = torch.cat([places for _, _, places in self._waiting]) + begins.to(device)
            for (row, _, _), part in zip(self._waiting, self._buffer[places].cpu().split(sizes)):
                self.samples[row] = part.view(self.samples[row].shape)
        self._sizes, self._waiting, self._used = [], [], 0

    def table(self):
        """All rows, on the host: 256 exponents, zeros, NaN, the largest finite magnitude, minus the smallest but zero."""
        self._count()
        table, apart, factors = torch.cat(self._counted), torch.tensor(self._apart), torch.tensor(self._factors)
        table[:, :_BINS + 2] *= apart[:, None]
        zeros, nans, largest, smallest = table[:, _BINS:].unbind(1)
        if not self._extremes:
            return table
        # What was passed over in between: NaN, infinities, and the largest value, which also gets into its place.
        parts = list(self._extremes)
        found = _joined([part.view(1) for row in parts for part in self._extremes[row]]).view(-1, 2)
        extremes = torch.zeros(len(table), 2)
        extremes[parts] = (found * factors[parts, None]).abs()
        nans.copy_(nans.maximum(extremes.isnan().any(1).long()))
        bad = table[:, _BINS - 1]
        bad.copy_(bad.maximum(nans).maximum(extremes.isinf().any(1).long()))
        magnitude = extremes.amax(1)
        known = magnitude.isfinite() & (apart > 1)
        largest.copy_(torch.where(known, magnitude.view(torch.int32).long(), largest))
        some = (largest > 0).long()
        smallest.copy_(torch.where(some > 0, smallest.maximum(-largest), smallest))
        place = (largest >> 23)[:, None]
        table.scatter_(1, place, table.gather(1, place).maximum(some[:, None]))
        return table


def _finite(loss):
    return loss is None or math.isfinite(float(loss.detach() if isinstance(loss, torch.Tensor) else loss))


def _bytes(tensor):
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _replace(path, pieces):
    """Readers see the old file or the new one, never a part."""
    temporary = f"{path}.tmp{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


def _write_safetensors(path, statistics, samples, shapes, metadata):
    """The statistics, and samples of these names and shapes, which lie one after the other."""
    data = [_bytes(statistics), _bytes(samples)]
    at = len(data[0])
    header = {"__metadata__": metadata,
              "statistics": {"dtype": "I64", "shape": list(statistics.shape), "data_offsets": [0, at]}}
    for name, shape in shapes.items():
        end = at + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    _replace(path, [len(text).to_bytes(8, "little"), text] + data)


def _number(value):
    """JSON has neither NaN nor infinities: they are texts."""
    value = float(value.detach() if isinstance(value, torch.Tensor) else value)
    return value if math.isfinite(value) else "nan" if value != value else "inf" if value > 0 else "-inf"


def _name(dtype):
    return str(dtype).replace("torch.", "")


def _autocast():
    if hasattr(torch, "get_autocast_dtype"):
        found = [torch.get_autocast_dtype(kind) for kind in ("cuda", "cpu") if torch.is_autocast_enabled(kind)]
    else:  # before PyTorch 2.4
        found = [torch.get_autocast_gpu_dtype()] if torch.is_autocast_enabled() else []
        found += [torch.get_autocast_cpu_dtype()] if torch.is_autocast_cpu_enabled() else []
    return _name(found[0]) if found else "none"


class _Capture:
    """The hooks of one step, and what they saw. Nothing of the step's tensors is kept but statistics and samples."""

    def __init__(self, model, leaves, sample):
        self.records, self.autocast, self.loss, self._sample = {}, "none", None, sample
        self._counts = {}  # by device; what is recorded of a tensor is the number of its row there
        self._handles, self._last = [], None
        self._hook(model, "", gradients=not leaves)
        for name, module in leaves:
            self._hook(module, name)

    def _hook(self, module, name, gradients=True):
        def before(module, args, kwargs=None):
            if torch.is_grad_enabled():
                self.autocast = _autocast() if self.autocast == "none" else self.autocast
                self._values(name, module, "input", dict(enumerate(args), **kwargs) if kwargs else args)

        def after(module, args, result):
            if not torch.is_grad_enabled():
                return
            found = list(_tensors(result))
            self._values(name, module, "output", result)
            if name == "":
                self.loss = next((tensor.detach() for _, tensor in found if tensor.dim() == 0), None)
            for key, tensor in found:
                if tensor.requires_grad and gradients:
                    self._handles.append(tensor.register_hook(
                        lambda gradient, key=key: self.note(name, module, "output_grad", key, gradient)))

        try:
            self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        except TypeError:  # before PyTorch 2.0: keyword arguments are not seen
            self._handles.append(module.register_forward_pre_hook(before))
        self._handles.append(module.register_forward_hook(after))

    def _values(self, name, module, kind, value):
        for key, tensor in _tensors(value):
            self.note(name, module, kind, key, tensor)

    def note(self, name, module, kind, key, tensor, factor=1.0):
        with torch.no_grad():
            if tensor.layout != torch.strided:
                tensor = tensor.coalesce().values()
            if tensor.numel() == 0:
                return
            known = self.records.get((name, kind, key))
            if kind == "input" and known is None and self._last is not None and self._last[0]() is tensor \
                    and self._last[1] == tensor._version:
                seen = self._last[2]  # the result of the module before
                self.records[name, kind, key] = dict(seen, about=dict(
                    seen["about"], module=name, kind=kind, index=key, **{"class": type(module).__name__}))
                return
            if tensor.device not in self._counts:
                self._counts[tensor.device] = _Counts(tensor.device, self._sample)
            row = tensor.device, self._counts[tensor.device].add(tensor, factor)
            if known is None:
                self.records[name, kind, key] = dict(
                    about=dict(module=name, **{"class": type(module).__name__}, kind=kind, index=key, calls=1,
                               dtype=_name(tensor.dtype), shape=list(tensor.shape)),
                    rows=[row], factor=factor)
                if kind == "output":
                    self._last = weakref.ref(tensor), tensor._version, self.records[name, kind, key]
            else:  # a module that runs several times in a step: added up, with the sample of the first
                known["rows"] = known["rows"] + [row]  # not in place: the next module's input may share them
                known["about"]["calls"] += 1

    def detach(self):
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def write(self, path, facts):
        records, begin, tables = list(self.records.values()), {}, []
        for device, counts in self._counts.items():
            begin[device] = sum(map(len, tables))
            tables.append(counts.table())
        table = torch.cat(tables) if tables else torch.zeros(0, _BINS + 4, dtype=torch.int64)
        numbers = [[begin[device] + number for device, number in record["rows"]] for record in records]
        rows = table[[each[0] for each in numbers]] if records else table
        for row, each in zip(rows, numbers):
            if len(each) > 1:
                row[:_BINS + 2], row[_BINS + 2:] = table[each, :_BINS + 2].sum(0), table[each, _BINS + 2:].amax(0)
        factors = torch.tensor([record["factor"] for record in records])
        samples = [self._counts[record["rows"][0][0]].samples[record["rows"][0][1]] for record in records]
        sizes = torch.tensor([sample.numel() for sample in samples], dtype=torch.int64)
        flat = _joined([sample.view(-1) for sample in samples]) * torch.repeat_interleave(factors, sizes)
        about = [dict(record["about"], sample="{module}/{kind}/{index}".format(**record["about"])) for record in records]
        shapes = {entry["sample"]: sample.shape for entry, sample in zip(about, samples)}
        _write_safetensors(path, rows, flat, shapes, dict(
            format="invar-probe", version=str(VERSION), facts=json.dumps(facts), tensors=json.dumps(about),
            statistics="one row for each of `tensors`: values by the 8 exponent bits of FP32 (256), zeros, NaN, "
                       "largest finite magnitude, and minus the smallest but zero, as bits of FP32"))


def _is_compiled(model):
    return any(hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
               for module in model.modules())


def _unwrap(model):
    while hasattr(model, "_orig_mod") or type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model


class InvarProbe:
    """Writes one file for each probed step into `folder`, and a line for each into its index.jsonl.

    every: probes the first step and each step whose number this divides; steps: these instead.
    first_step: the number of the first step, for a run that is resumed.
    sample: values kept of each tensor. keep_failures: how many failed steps are kept, the last ones.
    """

    def __init__(self, model, folder, optimizer=None, scaler=None, every=500, steps=None, first_step=1, sample=1024,
                 keep_failures=3):
        if every < 1 or sample < 1 or keep_failures < 0:
            raise ValueError("InvarProbe: every and sample must be at least 1, keep_failures at least 0")
        self.model, self.folder = _unwrap(model), os.fspath(folder)
        self._set_stance = None  # hooks are not called in compiled code: probed steps run as they are written
        if _is_compiled(model):
            self._set_stance = getattr(getattr(torch, "compiler", None), "set_stance", None)
            if self._set_stance is None:
                warnings.warn("InvarProbe: this PyTorch (before 2.6) runs compiled modules without hooks; probe the "
                              "model before torch.compile")
        self.optimizer, self.scaler = optimizer, scaler
        self.every, self.steps = every, None if steps is None else set(steps)
        self.sample, self.keep_failures, self.number = sample, keep_failures, first_step
        self._first = first_step
        self._capture = self._last_scale = self._flag = self._waiting = None
        self._armed_by = None  # the step that failed, where that is why this one is probed
        self.skips = 0
        attention = torch.nn.MultiheadAttention  # whose children are never called
        modules = list(self.model.named_modules(remove_duplicate=True))
        self._modules = modules
        inside = [name + "." for name, module in modules if isinstance(module, attention)]
        self._leaves = [(name, module) for name, module in modules if name
                        and (isinstance(module, attention) or next(module.children(), None) is None)
                        and not any(name.startswith(outer) for outer in inside)]
        ranks = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._writes = not ranks or torch.distributed.get_rank() == 0
        self._alone = not ranks or torch.distributed.get_world_size() == 1

    def __enter__(self):
        if self._writes:
            os.makedirs(self.folder, exist_ok=True)
            self._lines = self._read_index()
            self._write_index()
            self._arm_if_due()
        return self

    def __exit__(self, *_):
        self._disarm()

    def step(self, loss=None, replay=None):
        """Once for each step of the optimizer, right after backward() and before the optimizer's step.

        replay: runs forward and backward on the same batch again; called where the step has failed and was not probed.
        """
        if not self._writes:
            return
        number, scale = self.number, self._scale()
        skipped_before = self._last_scale is not None and scale < self._last_scale
        self.skips += skipped_before
        failed = self._capture is None and replay is not None and self._failed_now(loss)
        if self._capture is not None:
            self._keep(self._capture, number, loss, scale, "every" if self._due(number) else "after failure")
            self._armed_by = None
        elif failed and self._alone:
            self._replay(number, replay, scale)
        else:
            self._armed_by = number - 1 if skipped_before else self._failed_before(loss)
        self._last_scale = scale
        self.number += 1
        self._arm_if_due() if self._writes else self._disarm()

    # ---- which steps ----

    def _due(self, number):
        return number in self.steps if self.steps is not None else number == self._first or number % self.every == 0

    def _arm_if_due(self):
        self._disarm()
        if self._due(self.number) or (self._armed_by is not None and self.keep_failures > 0):
            self._arm()

    def _arm(self):
        self._capture = _Capture(self.model, self._leaves, self.sample)
        if self._set_stance is not None:
            self._set_stance("force_eager")

    def _disarm(self):
        if self._capture is None:
            return
        self._capture.detach()
        self._capture = None
        if self._set_stance is not None:
            self._set_stance("default")

    def _scale(self):
        # The scaler's own step waits for the device too, right after this.
        return float(self.scaler.get_scale()) if self.scaler is not None and self.scaler.is_enabled() else 1.0

    def _unscaled(self):
        states = getattr(self.scaler, "_per_optimizer_states", None)
        if states is None or self.optimizer is None or id(self.optimizer) not in states:
            return False
        return getattr(states[id(self.optimizer)].get("stage"), "value", 0) == 1

    # ---- failures ----

    @staticmethod
    def _norm(gradient):
        values = gradient.coalesce().values() if gradient.layout != torch.strided else gradient
        return torch.linalg.vector_norm(values.detach(), dtype=torch.float32).reshape(1)

    def _failed_now(self, loss):
        norms = [self._norm(p.grad) for p in self.model.parameters() if p.grad is not None]
        return not math.isfinite(float(_joined(norms).sum())) or not _finite(loss)

    def _failed_before(self, loss):
        """The step whose loss was not finite: this one or, on a device that is not waited for, one of the last."""
        if loss is None:
            return None
        if not getattr(loss, "is_cuda", False):
            return None if _finite(loss) else self.number
        bad = ~torch.isfinite(loss.detach()).all()
        self._flag = bad if self._flag is None else self._flag | bad
        if self._waiting is None:
            host = torch.empty((), dtype=torch.bool, pin_memory=True)
            host.copy_(self._flag, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            self._waiting, self._flag = (host, event, self.number), None
            return None
        host, event, number = self._waiting
        if not event.query():
            return None
        self._waiting = None
        return number if bool(host) else None

    def _replay(self, number, replay, scale):
        parameters = list(self.model.parameters())
        gradients = [p.grad for p in parameters]
        self._arm()
        try:
            for p in parameters:
                p.grad = None
            loss = replay()
            self._keep(self._capture, number, loss if loss is not None else self._capture.loss, scale, "replayed",
                       unscaled=False)
        finally:
            self._disarm()
            for p, gradient in zip(parameters, gradients):
                p.grad = gradient

    # ---- writing ----

    def _keep(self, capture, number, loss, scale, why, unscaled=None):
        capture.detach()
        factor = 1.0 if (self._unscaled() if unscaled is None else unscaled) else 1.0 / scale
        norms = []
        for name, module in self._modules:
            for key, parameter in module.named_parameters(recurse=False):
                capture.note(name, module, "weight", key, parameter)
                if parameter.grad is not None:
                    capture.note(name, module, "weight_grad", key, parameter.grad, factor)
                    norms.append(self._norm(parameter.grad))
        loss = capture.loss if loss is None else loss
        norm = factor * float(_joined(norms).double().norm())
        bad = not math.isfinite(norm) or not _finite(loss)
        facts = dict(step=number, why=why, loss=None if loss is None else _number(loss), grad_norm=_number(norm),
                     scale=_number(scale), skipped=bool(self.scaler is not None and self.scaler.is_enabled()
                                                        and not math.isfinite(norm)),
                     skips=self.skips, failed=bad, autocast=capture.autocast)
        if why == "after failure":
            facts["failed_step"] = self._armed_by
        file = f"step_{number:09d}.safetensors"
        try:
            capture.write(os.path.join(self.folder, file), facts)
            self._lines = [line for line in self._lines if line["step"] != number] + [dict(facts, file=file)]
            self._drop_old_failures()
            self._write_index()
        except OSError as error:  # a full disk is no reason to end the training
            warnings.warn(f"InvarProbe: cannot write to {self.folder}, and probes no further steps: {error}")
            self._writes = False

    def _drop_old_failures(self):
        kept = [line for line in self._lines if line["why"] != "every"]
        for line in kept[:max(0, len(kept) - self.keep_failures)]:
            self._lines.remove(line)
            if os.path.exists(os.path.join(self.folder, line["file"])):
                os.remove(os.path.join(self.folder, line["file"]))

    def _header(self):
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        card = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        return dict(format="invar-probe", version=VERSION, torch=str(torch.__version__), device=device.type, card=card,
                    model=type(self.model).__name__, every=self.every,
                    modules=[[name, type(module).__name__] for name, module in self._modules])

    def _read_index(self):
        """The steps of an earlier part of this run, up to where this one begins."""
        path = os.path.join(self.folder, INDEX)
        if not os.path.exists(path):
            return []
        with open(path) as file:
            header, *lines = [json.loads(line) for line in file]
        if header.get("version") != VERSION or header.get("modules") != json.loads(json.dumps(self._header()))["modules"]:
            raise ValueError(f"InvarProbe: {self.folder} holds the probe of another model; choose another folder")
        return [line for line in lines if line["step"] < self._first]

    def _write_index(self):
        lines = [json.dumps(line) + "\n" for line in [self._header()] + self._lines]
        _replace(os.path.join(self.folder, INDEX), [line.encode() for line in lines])


def _lightning_probe():
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class LightningProbe(Callback):
        """Trainer(callbacks=[LightningProbe("probe", every=500)])"""

        def __init__(self, folder="probe", **options):
            self.folder, self.options, self.probe, self.loss = folder, options, None, None

        def on_train_start(self, trainer, pl_module):
            plugin = getattr(trainer, "precision_plugin", None)
            optimizer = trainer.optimizers[0] if trainer.optimizers else None
            self.probe = InvarProbe(pl_module, self.folder, optimizer=optimizer, scaler=getattr(plugin, "scaler", None),
                                    first_step=trainer.global_step + 1, **self.options)
            self.probe.__enter__()

        def on_before_backward(self, trainer, pl_module, loss):
            self.loss = loss.detach()

        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            self.probe.step(self.loss)

        def on_train_end(self, trainer, pl_module):
            self.probe.__exit__()

        def on_exception(self, trainer, pl_module, exception):
            if self.probe is not None:
                self.probe.__exit__()

    return LightningProbe


def _hugging_face_probe():
    from transformers import TrainerCallback

    class HuggingFaceProbe(TrainerCallback):
        """Trainer(..., callbacks=[HuggingFaceProbe("probe", every=500)])"""

        def __init__(self, folder="probe", **options):
            self.folder, self.options, self.probe = folder, options, None

        def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
            inner = getattr(optimizer, "optimizer", optimizer)  # in Accelerate's wrapping, which has the scaler
            self.probe = InvarProbe(model, self.folder, optimizer=inner, scaler=getattr(optimizer, "scaler", None),
                                    first_step=state.global_step + 1, **self.options)
            self.probe.__enter__()

        def on_pre_optimizer_step(self, args, state, control, **_):
            self.probe.step()

        def on_train_end(self, args, state, control, **_):
            self.probe.__exit__()

    return HuggingFaceProbe


def __getattr__(name):  # so that importing this file does not import them
    if name == "LightningProbe":
        return _lightning_probe()
    if name == "HuggingFaceProbe":
        return _hugging_face_probe()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
