#!/usr/bin/env bash
# Checks that what the Markdown files of the tree link to exists: files, folders, and headings of Markdown files (#anchor as GitHub makes them).
# Usage: check_links.sh SOURCE_DIR
set -uo pipefail
cd "${1:?usage: check_links.sh SOURCE_DIR}" || exit 2

anchors() {  # FILE: the anchor of each heading
  sed -nE '/^ {0,3}```/,/^ {0,3}```/d; s/^#+ +//p' "$1" | sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g' | tr '[:upper:]' '[:lower:]' |
    sed -E 's/[^[:alnum:] _-]//g; s/ /-/g'
}

checked=0 broken=0
while IFS=: read -r file line link; do
  link=${link#](} link=${link%)}
  case $link in http:* | https:* | mailto:*) continue ;; esac
  checked=$((checked + 1))
  path=${link%%#*} anchor=''
  [[ $link == *#* ]] && anchor=${link#*#}
  target=$file
  [ -z "$path" ] || target=$(dirname "$file")/$path
  if [ ! -e "$target" ]; then
    echo "$file:$line: $link: there is no $target"
  elif [ -n "$anchor" ] && ! anchors "$target" | grep -qxF "$anchor"; then
    echo "$file:$line: $link: $target has no such heading"
  else
    continue
  fi
  broken=$((broken + 1))
done < <(find . -name '*.md' -not -path './build/*' -not -path './run/*' -not -path './.git/*' -printf '%P\n' | sort |
  xargs -d '\n' grep -noE '\]\([^) ]+\)' /dev/null)
[ "$checked" -gt 0 ] || { echo "no link found: is this the source tree?"; exit 2; }
[ $broken -eq 0 ] || exit 1
echo "all $checked links lead somewhere"
