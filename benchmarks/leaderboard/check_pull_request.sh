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

git diff --raw --no-renames -z "HEAD...$head" > "$work/changed"
mkdir "$work/head"
GIT_INDEX_FILE="$work/index" git -c core.symlinks=false -c core.autocrlf=false -c core.hooksPath=/dev/null \
  --work-tree="$work/head" checkout --quiet "$head" -- "$place"
rwbench validate --changed "$work/changed" --head "$work/head" --base .
