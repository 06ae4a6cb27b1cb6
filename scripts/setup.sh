# Sourced by the other scripts: installs what is missing and configures build/. Does nothing twice.
# Debian 12 and 13 and Ubuntu 24.04, as root or with sudo.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

invar_packages=(
  ca-certificates g++ cmake ninja-build ccache git
  libdnnl-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libfmt-dev zlib1g-dev
  libpcre2-dev libutf8proc-dev  # patterns and normal forms of tokenizers
  libjpeg-dev libpng-dev libwebp-dev  # images
  libpolyclipping-dev  # polygons of texts in images
  libfreetype-dev libpango1.0-dev libcairo2-dev  # scenes with text
  fonts-dejavu-core fonts-liberation fonts-freefont-ttf
  libopenmpi-dev openmpi-bin libmpich-dev mpich  # ranks that train together
  ocl-icd-opencl-dev  # oneDNN of Debian 12 is built with OpenCL, and its CMake file asks for it
  libgtest-dev libbenchmark-dev dataset-fashion-mnist
)

install_packages() {
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "Installing: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "error: these packages are missing and there is no sudo: ${missing[*]}" >&2; return 1; }
    as_root=(sudo)
  fi
  if [ -f /etc/os-release ] && grep -q '^ID=ubuntu' /etc/os-release && ! apt-cache policy dataset-fashion-mnist 2>/dev/null | grep -q Candidate; then
    "${as_root[@]}" sh -c 'apt-get update -qq && apt-get install -y -qq software-properties-common >/dev/null && add-apt-repository -y universe >/dev/null' || true
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null' sh "${missing[@]}"
}

# The tests of the reports look at them through a browser. Where none can be had (Ubuntu's is a snap), they are skipped.
install_browser() {
  command -v chromium >/dev/null && return 0
  if compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null && ! apt-cache show chromium >/dev/null 2>&1; then
    echo "There is no chromium here to install: the tests that take screenshots will be skipped."
    return 0
  fi
  install_packages chromium || echo "chromium could not be installed: the tests that take screenshots will be skipped."
}

# Says whether the CUDA device is built, and for which GPUs. Asked anew each time: nvcc or a card may have come.
configure() {
  local log
  log=$(cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release 2>&1) || {
    echo "$log" >&2
    return 1
  }
  grep -o 'CUDA device: .*' <<<"$log" || true
}
