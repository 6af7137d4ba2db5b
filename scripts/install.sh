#!/bin/sh
# Installs best-peer for this user, or upgrades it: from a release's folder or address, whose files are checked against
# its SHA256SUMS. Needs Python 3.11 or newer and no root; never touches the data folder. docs/install.md says more.
#
#   sh install.sh [SOURCE] [--version VERSION] [--cpu] [--systemd]
#   sh install.sh --uninstall
set -eu

PROGRAM=best-peer
UNIT=best-peer.service
MADE_BY='# Written by best-peer service'

say() { printf '%s\n' "$*"; }
# refuse WORDS: this order cannot be carried out, another might. fail WORDS: this machine stands in the way.
refuse() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 2; }

usage() {
  cat <<'END'
Installs best-peer for this user, or upgrades the one that is installed.

Usage: sh install.sh [SOURCE] [OPTIONS]
       sh install.sh --uninstall

SOURCE is a release: a folder, or an https:// or file:// address (http:// on this machine alone), that holds
best_peer-VERSION-py3-none-any.whl and SHA256SUMS, as scripts/release makes them. Without it: BEST_PEER_SOURCE, or
the folder that this script lies in.

Options
  --version VERSION  Install this one; the newest is taken otherwise.
  --cpu              With llama.cpp, to serve GGUF files without Docker. An upgrade keeps what there is.
  --systemd          Start it now and at each login, by a unit of systemd's user manager.
  --uninstall        Remove the program and its unit. The data folder stays.
  --help             Show this.

Environment
  BEST_PEER_SOURCE       SOURCE, where none is given.
  BEST_PEER_VERSION      VERSION, where none is given.
  BEST_PEER_INSTALL_DIR  Where the command is put: where an installed one already is, else ~/.local/bin.
  BEST_PEER_PYTHON       The Python to use; the newest of this machine otherwise.
  XDG_DATA_HOME          The program itself lies below it, in best-peer/; ~/.local/share otherwise.
  PIP_INDEX_URL, ...     Where pip gets the packages that best-peer needs, unless the release brings them itself.

Exit codes: 0 done; 1 refused, nothing was changed; 2 this machine stands in the way, what was installed still works.

Examples
  sh install.sh https://releases.example/best-peer
  BEST_PEER_VERSION=0.0.12 sh install.sh ./release
  curl -fsSL https://releases.example/best-peer/install.sh | BEST_PEER_SOURCE=https://releases.example/best-peer sh
END
}

# take_arguments ARGUMENT...
take_arguments() {
  SOURCE='' VERSION='' CPU='' SYSTEMD='' UNINSTALL=''
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) usage; exit 0 ;;
      --version) [ $# -ge 2 ] || refuse '--version needs a value, such as 0.1.0'; VERSION=$2; shift ;;
      --version=*) VERSION=${1#--version=} ;;
      --cpu) CPU=1 ;;
      --systemd) SYSTEMD=1 ;;
      --uninstall) UNINSTALL=1 ;;
      -*) refuse "$1 is no option; sh install.sh --help shows them" ;;
      *) [ -z "$SOURCE" ] || refuse "$1 is one argument too many; sh install.sh --help shows them"; SOURCE=$1 ;;
    esac
    shift
  done
  [ -z "$UNINSTALL" ] || [ -z "$SOURCE$VERSION$CPU$SYSTEMD" ] || refuse '--uninstall takes nothing else'
  SOURCE=${SOURCE:-${BEST_PEER_SOURCE:-}}
  VERSION=${VERSION:-${BEST_PEER_VERSION:-}}
  case $VERSION in
    *[!0-9a-zA-Z.+]*) refuse "$VERSION is no version; expected one such as 0.1.0" ;;
  esac
}

find_places() {
  [ -n "${HOME:-}" ] || fail 'HOME is not set, and the program goes below it'
  case ${XDG_DATA_HOME:-} in
    /*) SHARE=$XDG_DATA_HOME/best-peer ;;
    *) SHARE=$HOME/.local/share/best-peer ;;
  esac
  UNITS=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
  BIN=${BEST_PEER_INSTALL_DIR:-}
  if [ -z "$BIN" ]; then
    BIN=$HOME/.local/bin
    # Where one already is on the PATH, so that a rerun upgrades in place.
    found=$(command -v "$PROGRAM" 2>/dev/null || true)
    if [ -n "$found" ] && is_ours "$found"; then BIN=$(dirname "$found"); fi
  fi
  case $BIN in
    /*) ;;
    *) refuse "BEST_PEER_INSTALL_DIR=$BIN is refused: expected a path from the root" ;;
  esac
  LINK=$BIN/$PROGRAM
}

# is_ours PATH: whether it is the link that an install made.
is_ours() {
  [ -h "$1" ] || return 1
  case $(readlink "$1") in
    "$SHARE"/*/bin/"$PROGRAM") return 0 ;;
    *) return 1 ;;
  esac
}

# current: the folder of the version that the command is, if there is one.
current() {
  if is_ours "$LINK"; then dirname "$(dirname "$(readlink "$LINK")")"; fi
}

find_python() {
  lacking=''
  if [ -n "${BEST_PEER_PYTHON:-}" ]; then
    set -- "$BEST_PEER_PYTHON"
  else
    set -- python3.14 python3.13 python3.12 python3.11 python3
  fi
  for PYTHON; do
    command -v "$PYTHON" >/dev/null 2>&1 || continue
    "$PYTHON" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    "$PYTHON" -I -c 'import ensurepip, venv' 2>/dev/null && return
    lacking=${lacking:-$PYTHON}
  done
  [ -z "$lacking" ] || fail "$lacking cannot make environments: install python3-venv, as Debian calls it"
  fail "Python 3.11 or newer is needed and $* is not: install python3 and python3-venv, or name one in BEST_PEER_PYTHON"
}

# begin: this run alone changes what is installed; what it began and did not end is removed.
begin() {
  WORK='' BUILDING='' LOCKED=''
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  mkdir -p "$SHARE" 2>/dev/null || fail "$SHARE cannot be made: see that this user may write there"
  if ! mkdir "$SHARE/.lock" 2>/dev/null; then
    # It may be about to say who it is.
    [ -s "$SHARE/.lock/pid" ] || sleep 1
    holder=$(cat "$SHARE/.lock/pid" 2>/dev/null || true)
    if [ -n "$holder" ] && kill -0 "$holder" 2>/dev/null; then
      fail "another install (pid $holder) is under way: wait for it; if that is none, remove $SHARE/.lock"
    fi
    [ -w "$SHARE" ] || fail "this user may not write in $SHARE"
    # Its holder was killed before it could take it away.
  fi
  LOCKED=1
  echo "$$" >"$SHARE/.lock/pid" || fail "$SHARE cannot be written to: is there room?"
}

finish() {
  code=$?
  trap - EXIT
  trap '' INT TERM HUP
  [ -z "$BUILDING" ] || rm -rf "$BUILDING"
  [ -z "$WORK" ] || rm -rf "$WORK"
  rm -f "$LINK.$$"
  [ -z "$LOCKED" ] || rm -rf "$SHARE/.lock"
  exit "$code"
}

# fetch: puts the release's checked files into WORK; sets FOUND to its version and NAME to its folder's name.
fetch() {
  # Not in a folder for temporary files: here the next run finds what one that was killed left behind.
  WORK=$SHARE/.work
  { rm -rf "$WORK" && mkdir -m 700 "$WORK"; } || fail "$WORK cannot be made: see that this user may write there"
  "$PYTHON" -I - "$SOURCE" "$VERSION" "$WORK" "$CPU" <<'END' || exit $?
import hashlib, ipaddress, os, re, shutil, sys, urllib.error, urllib.parse, urllib.request

SOURCE, VERSION, WORK, CPU = sys.argv[1:]
MAX_SUMS, MAX_FILE, SECONDS, BLOCK = 1 << 20, 1 << 30, 60, 1 << 20
WHEEL = re.compile(r"best_peer-([0-9A-Za-z.+]+)-py3-none-any\.whl")
LINE = re.compile(r"([0-9a-f]{64}) [ *]((?:wheelhouse/)?[A-Za-z0-9][A-Za-z0-9._+-]*)")


def end(words, code):
    print(f"install.sh: {words}", file=sys.stderr)
    sys.exit(code)


def is_loopback(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed(address):
    parts = urllib.parse.urlsplit(address)
    if parts.username is not None or parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


class Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request, file, code, message, headers, address):
        # A release's files are often elsewhere, with a query of that place's own; but not in the clear.
        if not allowed(urllib.parse.urlsplit(address)._replace(query="", fragment="").geturl()):
            raise urllib.error.URLError(f"it leads on to {address[:120]}, which is not https")
        return super().redirect_request(request, file, code, message, headers, address)


def opened(name):
    if folder is not None:
        return open(os.path.join(folder, name), "rb")
    return opener.open(f"{SOURCE.rstrip('/')}/{urllib.parse.quote(name)}", timeout=SECONDS)


def get(name, most, target=None):
    """The SHA-256 of a file of the release, which is kept in target; its text where there is none."""
    digest, parts, size = hashlib.sha256(), [], 0
    try:
        with opened(name) as file, open(target or os.devnull, "wb") as kept:
            while block := file.read(BLOCK):
                size += len(block)
                if size > most:
                    end(f"{name} of {SOURCE} is larger than {most >> 20} MiB; nothing was changed", 1)
                digest.update(block)
                kept.write(block)
                parts += [block] if target is None else []
    except urllib.error.HTTPError as error:
        end(f"{SOURCE} has no {name} ({error.code}): name the address of a release; nothing was changed", 1)
    except FileNotFoundError:
        end(f"{SOURCE} has no {name}: name a release's folder, or make one by scripts/release; nothing was changed", 1)
    except (OSError, ValueError) as error:
        end(f"{name} of {SOURCE} could not be had ({getattr(error, 'reason', None) or error}); nothing was changed", 2)
    return digest.hexdigest() if target else b"".join(parts).decode("utf-8", "replace")


def order(version):
    """Releases before what leads to them; enough for telling the newest."""
    number = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    parts = tuple(map(int, number[0].split("."))) if number else ()
    while parts and parts[-1] == 0:
        parts = parts[:-1]
    return parts, is_final(version), version


def is_final(version):
    return re.fullmatch(r"[0-9.]+(?:\.post[0-9]+)?(?:\+.*)?", version) is not None


scheme = urllib.parse.urlsplit(SOURCE).scheme
folder = None
if scheme == "file":
    folder = urllib.request.url2pathname(urllib.parse.urlsplit(SOURCE).path)
elif "://" not in SOURCE:
    folder = SOURCE
elif not allowed(SOURCE):
    end(
        f"{re.sub('//[^/@]*@', '//...@', SOURCE)[:200]} is refused: expected a folder, or an https:// or file:// "
        "address (http:// on this machine alone) without a query or a password; nothing was changed",
        1,
    )
opener = urllib.request.build_opener(Redirects)

sums = {}
for number, line in enumerate(get("SHA256SUMS", MAX_SUMS).splitlines(), 1):
    if line.strip():
        match = LINE.fullmatch(line.strip())
        if match is None:
            end(f"line {number} of {SOURCE}'s SHA256SUMS is none; nothing was changed", 1)
        sums[match[2]] = match[1]
versions = {match[1]: name for name in sums if (match := WHEEL.fullmatch(name))}
listed = ", ".join(sorted(versions, key=order)) or "none"
if VERSION and VERSION not in versions:
    end(f"there is no {VERSION} at {SOURCE}, which has {listed}; nothing was changed", 1)
if not versions:
    end(f"{SOURCE} holds no best_peer-VERSION-py3-none-any.whl; nothing was changed", 1)
final = [version for version in versions if is_final(version)]
chosen = VERSION or max(final or versions, key=order)

wanted = [versions[chosen], *sorted(name for name in sums if name.startswith("wheelhouse/"))]
os.mkdir(os.path.join(WORK, "wheelhouse"))
for name in wanted:
    if get(name, MAX_FILE, os.path.join(WORK, name)) != sums[name]:
        end(f"{name} of {SOURCE} does not match SHA256SUMS: it is not what was released; nothing was changed", 1)
whole = hashlib.sha256("".join(f"{sums[name]} {name}\n" for name in wanted).encode()).hexdigest()
with open(os.path.join(WORK, "found"), "w") as file:
    file.write(f"{chosen}\n{chosen}-{whole[:8]}{'-cpu' if CPU else ''}\n{versions[chosen]}\n")
END
  { read -r FOUND; read -r NAME; read -r WHEEL; } <"$WORK/found"
}

# build: the version in a folder of its own. It is whole once its mark is there; what has none is begun again.
build() {
  NEW=$SHARE/$NAME
  if [ -f "$NEW/.whole" ] && runs; then return; fi
  rm -rf "$NEW"
  BUILDING=$NEW
  say "installing $PROGRAM $FOUND into $NEW ..."
  # Without pip in it, which takes longer to put there than all else: the one that ensurepip brings does the work.
  "$PYTHON" -I -m venv --without-pip "$NEW" >"$WORK/log" 2>&1 || told "$PYTHON could not make an environment in $NEW."
  set -- "$WORK/$WHEEL${CPU:+[cpu]}"
  source='can pip reach a package index?'
  if [ -n "$(ls "$WORK/wheelhouse")" ]; then
    set -- --no-index --find-links "$WORK/wheelhouse" "$@"
    source="does the release bring them for $("$PYTHON" -I --version) on $(uname -m)?"
  fi
  (
    # What a user has set for other work must not send the packages elsewhere.
    unset PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
    export PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INPUT
    pip install --quiet "$@"
  ) >"$WORK/log" 2>&1 || told "the packages of $PROGRAM $FOUND could not be installed: $source"
  runs || told "$NEW/bin/$PROGRAM does not run, or is not $FOUND."
  : >"$NEW/.whole"
  BUILDING=''
}

# pip ARGUMENT...: that of ensurepip, from its own wheel, for the new folder.
pip() {
  "$NEW/bin/python" -I - "$@" <<'END'
import ensurepip, glob, os, runpy, sys, sysconfig

places = sysconfig.get_config_var("WHEEL_PKG_DIR"), os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
wheels = [wheel for place in places if place for wheel in glob.glob(os.path.join(place, "pip-*.whl"))]
if not wheels:
    sys.exit("this Python's ensurepip brings no pip")
sys.path.insert(0, wheels[0])
runpy.run_module("pip", run_name="__main__", alter_sys=True)
END
}

runs() {
  said=$("$NEW/bin/$PROGRAM" --version 2>"$WORK/log") || return 1
  [ "$said" = "$PROGRAM $FOUND" ]
}

# told WORDS: fails with the last lines of what went wrong.
told() {
  tail -n 8 "$WORK/log" >&2 || true
  fail "$* What was installed before is as it was"
}

# switch: the command becomes the new version's in one step.
switch() {
  OLD=$(current)
  # Left by one that was killed in the middle.
  for stray in "$LINK".[0-9]*; do
    if is_ours "$stray"; then rm -f "$stray"; fi
  done
  [ "$OLD" != "$NEW" ] || return 0
  ln -s "$NEW/bin/$PROGRAM" "$LINK.$$" || fail "$BIN cannot be written to: name another in BEST_PEER_INSTALL_DIR"
  mv -f "$LINK.$$" "$LINK"
}

# sweep: removes versions but this one, the one before it, and any that a program still runs from.
sweep() {
  [ "$OLD" != "$NEW" ] || return 0
  for folder in "$SHARE"/*/; do
    folder=${folder%/}
    case $folder in "$NEW" | "$OLD") continue ;; esac
    if is_version "$folder" && ! is_used "$folder"; then rm -rf "$folder"; fi
  done
}

# is_version FOLDER: whether an install made it. Others may lie beside: a data folder may have been put there.
is_version() { [ -f "$1/pyvenv.cfg" ] && [ ! -h "$1" ]; }

# is_used FOLDER: whether a process of this machine was started from it, as far as this user may see.
is_used() { grep -qsF "$1/" /proc/[0-9]*/cmdline; }

# peers_of_others: the pids of peers that serve from here, by another version than this one.
peers_of_others() {
  pids=''
  for used in $(grep -lsF "$SHARE/" /proc/[0-9]*/cmdline || true); do
    pid=${used#/proc/} pid=${pid%/cmdline}
    if grep -qsF "$NEW/" "$used"; then continue; fi
    # One that serves has no argument; a command that looks on has some.
    if { tr '\0' '\n' <"$used"; } 2>/dev/null | tail -n 1 | grep -qx ".*/$PROGRAM"; then
      pids=${pids:+$pids, }$pid
    fi
  done
  printf '%s' "$pids"
}

has_manager() { command -v systemctl >/dev/null 2>&1 && systemctl --user show-environment >/dev/null 2>&1; }

# write_unit: puts the unit in place, unless somebody else's is there.
write_unit() {
  unit=$UNITS/$UNIT
  if [ -e "$unit" ] && ! grep -qF "$MADE_BY" "$unit"; then
    say "$unit is not this script's and is left as it is"
    return
  fi
  mkdir -p "$UNITS" || fail "$UNITS cannot be made"
  "$NEW/bin/$PROGRAM" service --program "$LINK" >"$unit.$$" || { rm -f "$unit.$$"; fail "$unit cannot be written"; }
  mv -f "$unit.$$" "$unit"
  say "$unit is in place; its settings are read from ~/.config/best-peer/env, a line each: NAME=value"
}

start_unit() {
  if ! has_manager; then
    say "systemd's user manager does not answer here: log in as this user, and then"
    say "  systemctl --user daemon-reload && systemctl --user enable --now $UNIT"
  else
    systemctl --user daemon-reload
    systemctl --user enable --quiet "$UNIT"
    systemctl --user restart "$UNIT" \
      || fail "$PROGRAM $FOUND is installed and its unit does not start: best-peer check says what is in the way"
    say "$UNIT runs, and starts at each login"
  fi
  user=$(id -un)
  [ -e "/var/lib/systemd/linger/$user" ] \
    || say "to have it run from the machine's start on, without a login: sudo loginctl enable-linger $user"
}

has_unit() { [ -f "$UNITS/$UNIT" ] && grep -qsF "$MADE_BY" "$UNITS/$UNIT"; }

# refuse_while_used [PID]: ends here while another process than this one runs from what would be removed.
refuse_while_used() {
  all=$(grep -lsF "$SHARE/" /proc/[0-9]*/cmdline || true)
  for used in $all; do
    pid=${used#/proc/} pid=${pid%/cmdline}
    # The grep itself is one that is gone by now.
    if [ "$pid" = "${1:-}" ] || [ ! -e "/proc/$pid" ]; then continue; fi
    # A peer's data are where it was told at its start, which this shell need not have.
    data=$({ tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | sed -n 's/^BEST_PEER_DATA=//p')
    if { tr '\0' '\n' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qx ".*/$PROGRAM"; then
      fail "$PROGRAM runs (pid $pid, data in ${data:-$HOME/.best-peer}): revoke the keys, stop it (kill $pid)," \
        "and do this again; nothing was changed"
    fi
    fail "a model runs that a peer started (pid $pid): revoke the keys, or end it (kill $pid)," \
      "and do this again; nothing was changed"
  done
}

uninstall() {
  if [ ! -d "$SHARE" ] && ! is_ours "$LINK" && ! has_unit; then
    say "nothing is installed: there is no $SHARE"
    return
  fi
  begin
  if has_unit; then
    if has_manager; then
      # The unit's own peer is stopped with it; what that serves runs on, and is in the way.
      refuse_while_used "$(systemctl --user show --property MainPID --value "$UNIT")"
      systemctl --user stop --quiet "$UNIT" || true
      # Somebody may have started one meanwhile.
      if is_used "$SHARE"; then systemctl --user start --quiet --no-block "$UNIT" || true; fi
      refuse_while_used
      systemctl --user disable --quiet "$UNIT" || true
    fi
    refuse_while_used
    rm -f "$UNITS/$UNIT"
    if has_manager; then systemctl --user daemon-reload || true; fi
  fi
  refuse_while_used
  if is_ours "$LINK"; then rm -f "$LINK"; fi
  for folder in "$SHARE"/*/; do
    if is_version "${folder%/}"; then rm -rf "${folder%/}"; fi
  done
  rm -rf "$SHARE/.work" "$SHARE/.lock"
  LOCKED=''
  rmdir "$SHARE" 2>/dev/null || say "$SHARE holds more than $PROGRAM, which is left as it is"
  say "$PROGRAM is removed. Its data, keys and log are left in ${BEST_PEER_DATA:-$HOME/.best-peer}"
}

# source_beside: the folder that this script lies in, where that is a release.
source_beside() {
  case $0 in
    *install.sh) beside=$(cd "$(dirname "$0")" 2>/dev/null && pwd) || return 0 ;;
    *) return 0 ;;
  esac
  if [ -f "$beside/SHA256SUMS" ]; then SOURCE=$beside; fi
}

main() {
  take_arguments "$@"
  find_places
  if [ -n "$UNINSTALL" ]; then
    uninstall
    return
  fi
  [ -n "$SOURCE" ] || source_beside
  [ -n "$SOURCE" ] || refuse 'name a release: its folder or its address, as an argument or in BEST_PEER_SOURCE'
  find_python
  if { [ -e "$LINK" ] || [ -h "$LINK" ]; } && ! is_ours "$LINK"; then
    refuse "$LINK is there and is none of this script's: remove it, or name another folder in BEST_PEER_INSTALL_DIR"
  fi
  begin
  mkdir -p "$BIN" 2>/dev/null || fail "$BIN cannot be made: name another folder in BEST_PEER_INSTALL_DIR"
  case $(current) in *-cpu) CPU=1 ;; esac
  fetch
  build
  switch
  sweep
  already=''
  [ "$OLD" != "$NEW" ] || already=' already'
  say "$PROGRAM $FOUND is installed$already: $LINK"
  case :$PATH: in
    *:"$BIN":*)
      first=$(command -v "$PROGRAM" 2>/dev/null || true)
      [ "$first" = "$LINK" ] || say "another $PROGRAM comes first on your PATH: $first"
      ;;
    *) say "$BIN is not on your PATH; for this shell, and in your profile: export PATH=\"$BIN:\$PATH\"" ;;
  esac
  if [ -n "$SYSTEMD" ]; then
    write_unit
    start_unit
  fi
  behind=$(peers_of_others)
  if [ -n "$behind" ]; then
    how=''
    if has_unit; then how=" (systemctl --user restart $UNIT)"; fi
    say "$PROGRAM runs (pid $behind) and goes on with the version it was started with: start it again$how"
  elif [ -z "$SYSTEMD" ]; then
    say "next: best-peer check"
  fi
}

# Last, so that a download that was cut short does nothing.
main "$@"
