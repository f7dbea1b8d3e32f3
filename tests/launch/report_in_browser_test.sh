#!/usr/bin/env bash
# The reports of real runs and of a grid, looked at by a real browser: each opens from a file with the network cut off, loads nothing, and no two
# texts of a drawing overlap or stick out of it. Screenshots stay beside the test. Skipped (code 77) where there is no Chromium.
# Usage: report_in_browser_test.sh HADAL
set -u
hadal=${1:?usage: report_in_browser_test.sh HADAL}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  { echo "SKIPPED: no Chromium (Debian: chromium)"; exit 77; }
here=$PWD
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fail() { echo "FAILED: $1"; exit 1; }

"$hadal" make-corpus --out text --pairs 400 --valid 20 --test 20 --seed 3 > /dev/null &&
  "$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 300 > /dev/null ||
  fail "no corpus"
cat > small.textproto <<'END'
data { train: "data/train" validation: "data/valid" }
model { encoder_layers: 4 decoder_layers: 4 d_model: 64 d_ff: 128 heads: 4 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 6 source_tokens: 128 target_tokens: 128 }
pipeline { threads: 1 recompute_every: 3 }
stop { steps: 12 }
validation { every_steps: 4 }
END
"$hadal" train small.textproto --run-dir one > log 2>&1 || { cat log; fail "one rank"; }
mpirun -n 2 --bind-to none --oversubscribe "$hadal" train small.textproto --run-dir two --trace steps=5-6 > log 2>&1 ||
  { cat log; fail "two ranks"; }
"$hadal" report one two --out report > log 2>&1 || { cat log; fail "hadal report"; }
for file in report.html report.json report.md; do [ -s $file ] || fail "no $file"; done

cat > grid.textproto <<'END'
title: "Methods, rates and depths"
base: "small.textproto"
axes {
  name: "method"
  values { label: "deepnorm" set: "model.residual.method=deepnorm" }
  values { label: "post_ln" set: "model.residual.method=post_ln" }
  values { label: "b2t_rescaled" set: "model.residual.method=b2t_rescaled" }
}
axes { name: "rate" values { label: "1e-3" } values { label: "3e-3" set: "learning_rate.peak=3e-3" } }
axes { name: "warmup" values { label: "none" set: "learning_rate.warmup_updates=0" } }
axes { name: "depth" values { label: "4" } }
END
"$hadal" compare grid.textproto --out grid > log 2>&1 || { cat log; fail "hadal compare"; }

# What a browser measures in a page, and leaves there.
cat > script.html <<'END'
<script>
const faults = [];
let texts_seen = 0;
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(t => ({name: t.textContent, box: t.getBoundingClientRect()}));
  texts_seen += texts.length;
  for (const t of texts) {
    if (t.box.left < frame.left - 1 || t.box.right > frame.right + 1 || t.box.top < frame.top - 1 || t.box.bottom > frame.bottom + 1)
      faults.push(`"${t.name}" sticks out`);
  }
  for (let i = 0; i < texts.length; ++i) for (let j = i + 1; j < texts.length; ++j) {
    const a = texts[i].box, b = texts[j].box;
    const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (x > 1 && y > 2) faults.push(`"${texts[i].name}" overlaps "${texts[j].name}"`);
  }
}
if (document.body.scrollWidth > document.documentElement.clientWidth + 1) faults.push('the page is wider than its window');
for (const entry of performance.getEntriesByType('resource')) faults.push(`loads ${entry.name}`);
const result = document.createElement('pre');
result.id = 'measured';
result.textContent = [`texts: ${texts_seen}`, ...faults.map(f => `fault: ${f}`)].join('\n');
document.body.append(result);
</script></body></html>
END
look=("$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --proxy-server=127.0.0.1:9 --hide-scrollbars)

# look_at FILE NAME: a screenshot NAME.png beside the test, and the page's faults.
look_at() {
  timeout 60 "${look[@]}" --window-size=1240,2600 --screenshot="$here/$2.png" "file://$work/$1" > log 2>&1
  [ -s "$here/$2.png" ] || { tail -n 5 log; fail "no screenshot"; }
  sed 's|</body></html>||' "$1" | cat - script.html > measured.html
  timeout 60 "${look[@]}" --window-size=1240,2600 --dump-dom "file://$work/measured.html" > dom.html 2> log || { tail -n 5 log; fail "no page"; }
  sed -n '/id="measured"/,/<\/pre>/p' dom.html | sed 's/<[^>]*>//g' > measured
  grep -q '^texts: [1-9][0-9]' measured || { head -n 5 measured; fail "the browser saw no texts"; }
  if grep '^fault' measured; then cp "$1" "$here/$2_with_faults.html"; fail "faults in the page ($2_with_faults.html)"; fi
  echo "$2: $(head -n 1 measured), none overlaps; screenshot: $here/$2.png"
}
look_at report.html report
look_at grid/comparison.html comparison
echo "all checks passed"
