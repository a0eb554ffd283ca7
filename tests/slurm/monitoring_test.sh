#!/usr/bin/env bash
# monitoring_test.sh BIN_DIR: a real Prometheus with the files of slurm/monitoring reads a run that a real Slurm of two nodes
# requeues once.
#
# - The steps of the run continue in Prometheus after the requeue, with the labels of the run and the job.
# - Each query of the Grafana dashboard has data, and Prometheus evaluates each alert rule.
# - promtool has no finding in the configuration, the rules and the metrics that the run serves.
# - After the run is cancelled, its series end.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
source tests/support/shell.sh
bin=$(cd "$1" && pwd)
for program in prometheus promtool python3; do
  command -v "$program" >/dev/null || skip "$program is not installed (apt-get install prometheus python3)"
done
source tests/slurm/with_cluster.sh

kPort=20900
kUrl=http://127.0.0.1:$kPort
prometheus_pid=

api() { on python3 "$checkout/tests/slurm/prometheus_api.py" "$kUrl" "$@"; }
value_is() { [[ $(api value "$1") == "$2" ]]; }
value_is_over() { # value_is_over QUERY LEAST: is false without a value
  local value
  value=$(api value "$1")
  [[ -n $value ]] && ((value > $2))
}
is_ready() { on python3 -c "import urllib.request; urllib.request.urlopen('$kUrl/-/ready')" 2>/dev/null; }
expect_accepted() { # expect_accepted COMMAND...
  local said
  said=$("$@" 2>&1) || broken "$*: exit $?: $said"
}

# Ends Prometheus where the nodes have no namespaces. Otherwise it ends with the namespace of the cluster.
after_cluster() { [[ -z $prometheus_pid ]] || kill "$prometheus_pid" 2>/dev/null || true; }

# The configuration differs from slurm/monitoring/prometheus.yml only in the directory of the links and in the times.
start_prometheus() {
  mkdir -p "$work/prometheus/links"
  ln -s "$work/watched/prometheus_sd.json" "$work/prometheus/links/watched.json"
  cp slurm/monitoring/alerts.yml "$work/prometheus/"
  sed -E "s|- /shared/prometheus/|- $work/prometheus/links/|; s/(scrape_interval|evaluation_interval): 15s/\1: 1s/; s/(refresh_interval): 10s/\1: 1s/" \
    slurm/monitoring/prometheus.yml >"$work/prometheus/prometheus.yml"
  expect_equal "changed lines of prometheus.yml" 4 "$(diff slurm/monitoring/prometheus.yml "$work/prometheus/prometheus.yml" | grep -c '^>')"
  expect_accepted promtool check rules "$work/prometheus/alerts.yml"
  "$cluster/on" ctl prometheus --config.file "$work/prometheus/prometheus.yml" --storage.tsdb.path "$work/prometheus/data" \
    --web.listen-address "127.0.0.1:$kPort" >"$work/prometheus.out" 2>&1 &
  prometheus_pid=$!
  disown  # bash reports no death of this process
  await 60 "Prometheus" is_ready
}

a_requeued_run_continues_its_series() {
  local job start=$SECONDS
  job=$(steps=100000 submit watched --metrics.listen 0.0.0.0:0 --train.eval_every 5 --data.split 80,20,0 --train.log_every 1)
  await 120 "the first attempt in Prometheus" value_is_over "trireme_step{run=\"watched\",job=\"$job\"}" 20
  await 30 "restarts of the first attempt" value_is "trireme_restarts_total{run=\"watched\",job=\"$job\"}" 0
  expect_accepted promtool check config "$work/prometheus/prometheus.yml"  # needs the file that the link names
  on scancel --signal=USR2 "$job"
  await 120 "the requeue" requeued watched
  await 120 "the second attempt in Prometheus" value_is "trireme_restarts_total{run=\"watched\",job=\"$job\"}" 1
  await 60 "its steps" value_is_over "trireme_step{run=\"watched\",job=\"$job\"}" $(($(first_committed watched) + 20))
  api answers watched slurm/monitoring/grafana-dashboard.json slurm/monitoring/alerts.yml || broken "the answers of Prometheus"
  api steps watched "$job" $((SECONDS - start)) || broken "the steps in Prometheus"
  api page "$work/watched/prometheus_sd.json" >"$work/metrics.txt"
  expect_match "the page of the run" 'trireme_step\{run="watched",job="'"$job"'"\}' "$(<"$work/metrics.txt")"
  promtool check metrics <"$work/metrics.txt" >"$work/promtool.txt" 2>&1 || broken "promtool check metrics: exit $?"
  expect_equal "findings of promtool check metrics" '' "$(<"$work/promtool.txt")"
  on scancel "$job"
  await 60 "the end of the job" ended "$job"
  await 30 "the end of its series" value_is 'trireme_step{run="watched"}' ''
  [[ ! -e $work/watched/prometheus_sd.json ]] || broken "prometheus_sd.json is there after the end of the run"
}

cluster_up
"$bin/trireme-data" pack --kind pretrain --tokenizer "$work/tokenizer" --input "$work/corpus.jsonl" --seq-len 64 --output "$work/set"
start_prometheus
run_scenarios a_requeued_run_continues_its_series
finish
