# Sourced by scripts/run and scripts/test: leaves a .venv with the packages of the files
# `locks`, or says why not. Sets `root` (the repository) and `python` (the
# environment's interpreter).

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
python=$root/.venv/bin/python

find_python_3_11() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 python3 python; do
    [[ -n $candidate ]] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
        2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  cat >&2 <<MESSAGE
error: Python 3.11 was not found (looked for \$PYTHON, python3.11, python3 and
python on PATH). TensorFlow Federated 0.87 runs on 3.11 only. Install it (Debian:
apt-get install python3.11 python3.11-venv; or pyenv, conda, uv python install 3.11)
and run this again, or set PYTHON=/path/to/python3.11.
MESSAGE
  return 1
}

for lock in "${locks[@]}"; do
  stamp=$root/.venv/$lock.sha256
  if [[ ! -x $python ]] || [[ ! -f $stamp ]] ||
      [[ $(<"$stamp") != $(sha256sum <"$root/$lock" | cut -d' ' -f1) ]]; then
    base_python=$(find_python_3_11) || exit 1
    "$base_python" -I "$root/scripts/setup_environment.py" "$root" "${locks[@]}" ||
      exit 1
  fi
done

# The user's own paths could put other packages before the locked ones.
unset PYTHONHOME
export PYTHONPATH=$root
