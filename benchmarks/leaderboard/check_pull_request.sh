#!/usr/bin/env bash
# Checks the submissions that a pull request adds. Run it in a checkout of main that has fetched the pull request:
#   bash benchmarks/leaderboard/check_pull_request.sh REF
# Nothing of the pull request is run: its files are laid out in a folder of their own, links as plain text.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
head="$(git rev-parse --verify "$1^{commit}")"
place=benchmarks/leaderboard/submissions
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Mode 100644 is no link, no program and no submodule. git writes names with odd characters in quotation marks.
git -c core.quotePath=true diff-tree -r --no-renames "$(git merge-base HEAD "$head")" "$head" > "$work/changed"
folder="$place/[0-9]{4}-[0-9]{2}-[0-9]{2}_[a-z0-9.-]+"
if LC_ALL=C grep -Ev "^:000000 100644 [0-9a-f]+ [0-9a-f]+ A"$'\t'"$folder/(submission\.json|samples\.jsonl\.zst)$" \
  "$work/changed"; then
  echo "refused: a pull request with a submission adds folders of two plain files to $place and nothing else"
  exit 1
fi
folders=()
for name in $(cut -d/ -f4 "$work/changed" | sort -u); do
  if [ -e "$place/$name" ]; then
    echo "refused: $name is on the board already; add a new folder: what is on the board stays as it is"
    exit 1
  fi
  folders+=("$work/head/$place/$name")
done
mkdir "$work/head"
GIT_INDEX_FILE="$work/index" git -c core.symlinks=false -c core.autocrlf=false -c core.hooksPath=/dev/null \
  --work-tree="$work/head" checkout --quiet "$head" -- "$place"
rwbench validate --board "$place" "${folders[@]}"
