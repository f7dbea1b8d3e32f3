# The Debian 12 packages hadal needs, in one place; sourced by launch/quickstart and tests/run.
hadal_build_packages=(
  g++ cmake ninja-build pkg-config
  libopenmpi-dev openmpi-bin libprotobuf-dev protobuf-compiler libabsl-dev libhwy-dev
  libsentencepiece-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libzstd-dev libexpat1-dev python3
)
hadal_test_packages=(libgtest-dev libgmock-dev clang-format clang-tidy lld)
# What the parity tests compare with. Large (140 MB); without it they are skipped and counted.
hadal_parity_packages=(python3-torch python3-numpy)
# pyhadal: `hadal report`, `hadal curve --svg`, examples/look_at_a_run.ipynb. Without them their tests are skipped and counted.
hadal_python_packages=(python3-pandas python3-matplotlib python3-jinja2)
hadal_notebook_packages=(python3-nbclient python3-ipykernel)
# For a venv with what hadal_torch is compared with beside PyTorch (tests/tools/python/requirements.txt: 80 MB from PyPI). The same.
hadal_interchange_packages=(python3-venv)
# A Slurm of one's own, several hosts on one machine. Without one of them its test is skipped and counted.
hadal_site_packages=(slurm-wlm munge iproute2)

# missing_packages PACKAGE...: prints those that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || echo "$package"
  done
}

# install_packages PACKAGE...: installs what is missing, as root or with sudo; says what it does and how long it takes. No service is started.
install_packages() {
  local missing sudo=()
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "Installing ${#missing[@]} Debian packages (a minute or two): ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "You are not root and there is no sudo. Ask an administrator for: apt-get install ${missing[*]}" >&2
      return 1
    }
    sudo=(sudo)
  fi
  "${sudo[@]}" apt-get update -qq &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
