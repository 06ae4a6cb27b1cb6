// The Python text that keeps modules in FP32.
#include <fmt/format.h>

#include <algorithm>

#include "invar/core/printable.h"
#include "invar/diagnose/probe_diagnosis.h"

namespace invar {

namespace {

constexpr std::string_view kBody = R"(

def _fp32(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() and value.element_size() < 4 else value
    if type(value) in (list, tuple):
        return type(value)(_fp32(part) for part in value)
    if type(value) is dict:
        return {key: _fp32(part) for key, part in value.items()}
    return value


def _keep(module):
    forward = module.forward

    @functools.wraps(forward)
    def in_fp32(*args, **kwargs):
        kinds = {t.device.type for t in args if isinstance(t, torch.Tensor)} or {p.device.type for p in module.parameters()}
        with contextlib.ExitStack() as regions:
            for kind in kinds or {"cpu"}:
                regions.enter_context(torch.autocast(device_type=kind, enabled=False))
            return forward(*_fp32(args), **_fp32(kwargs))

    module.forward = in_fp32


def apply(model):
    """Once, on the model as it was probed, before the first step."""
    known = dict(model.named_modules())
    missing = [name for name in MODULES if name not in known]
    if missing:
        raise KeyError(f"the model has no module {missing[0]!r}; apply this to the model that was probed")
    for name in MODULES:
        _keep(known[name])
    return model
)";

// Nothing in a name may end its literal.
std::string python_literal(const std::string& text) {
    std::string literal = "\"";
    for (std::string_view rest = text; !rest.empty();) {
        const Character next = first_character(rest);
        const bool plain =
            next.bytes == 1 && next.code >= ' ' && next.code < 127 && next.code != '"' && next.code != '\\';
        literal += plain ? std::string(1, char(next.code))
                         : fmt::format("\\U{:08x}", std::uint32_t(next.bytes > 0 ? next.code : U'?'));
        rest.remove_prefix(std::max<std::size_t>(1, next.bytes));
    }
    return literal + "\"";
}

}  // namespace

std::string fp32_patch(const std::vector<std::string>& modules, const std::string& made_from) {
    std::string list;
    for (const std::string& module : modules) list += fmt::format("    {},\n", python_literal(module));
    return fmt::format(
        "# Keeps these modules in FP32 under torch.autocast. Made by `invar diagnose` from {}.\n"
        "#\n#     import keep_fp32\n#     keep_fp32.apply(model)\n"
        "import contextlib\nimport functools\n\nimport torch\n\nMODULES = [\n{}]\n{}",
        printable(made_from), list, kBody);
}

}  // namespace invar
