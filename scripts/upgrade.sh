#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/upgrade.sh [--check | --dry-run] [options of `cgpu upgrade`]: take what is installed on
# this host to the version in this directory, without stopping a container.
#
# Another build of the version that is installed (git pull) is told by its sources' content, and
# calls itself VERSION+DIGITS.
#
# The new tools go beside the old ones; `cgpu upgrade` does the rest: builds the new module, hands
# the running one's state over to it, puts the files in place, leads /opt/cgpu to the new tools and
# restarts the services. If anything fails, all of it is taken back.
#
#   --check        say whether it is possible under running containers; nothing is changed
#   --cold         unload the old module and load the new one; no container may run
#   --dry-run      show what would be done; nothing is changed
#   CGPU_HOME      the link that leads to the tools (/opt/cgpu)
#   PYTHON         the interpreter to use: 3.11 or newer
set -eu
[ "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # as `sh FILE`
set -o pipefail
# They would lead the installed tools to another's package.
unset PYTHONPATH PYTHONHOME
# root's own is often 077, and all users run the tools.
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/lib/say
source "$here/scripts/lib/say"
home=${CGPU_HOME:-/opt/cgpu}
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$here/pycgpu/__init__.py")
tools=$home-$version

look=
for argument in "$@"; do
    case $argument in
    --check | --dry-run) look=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    esac
done

[[ -L $home ]] || die "$home is no link to the tools: cgpu is not installed there; scripts/install does that"
sources=$here
installed=$(readlink "$home")
# shellcheck source=scripts/lib/build
source "$here/scripts/lib/build"
build=$(build_of "$here")
if [[ $installed == "$tools" || $installed == "$tools+"* ]] && [[ $(cat "$home/build" 2>/dev/null) != "$build" ]]; then
    [[ ! -d $here/wheels ]] ||
        die "$installed is another build of $version: make the package with a version of its own (-v)"
    version+=+$build
    tools=$home-$version
    sources=$(mktemp -d)
    trap 'rm -rf "$sources"' EXIT
    stamped "$here" "$version" "$sources"
elif [[ $installed == "$tools+"* ]]; then
    tools=$installed
fi
if [[ $installed == "$tools" ]]; then
    # Also goes on with an upgrade to this version that was cut short.
    exec "$home/bin/cgpu" upgrade "$@"
fi
# shellcheck source=scripts/lib/tools
source "$here/scripts/lib/tools"

((EUID == 0)) || [[ $look ]] || die "upgrading takes root: run it with sudo"
refuse_early upgrade "$@"
if [[ $look ]]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"; [[ $sources == "$here" ]] || rm -rf "$sources"' EXIT
    make_tools "$scratch/cgpu" "$home"
    "$scratch/cgpu/bin/cgpu" upgrade "$@"
    exit
fi

# What was not taken over is not kept.
undo() {
    [[ $(readlink "$home") == "$tools" ]] || rm -rf "$tools"
    [[ $sources == "$here" ]] || rm -rf "$sources"
}
trap undo EXIT
say "making $tools"
rm -rf "$tools"
make_tools "$tools" "$home"
"$tools/bin/cgpu" upgrade --tools "$home" "$@"
