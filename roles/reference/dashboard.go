package reference

import (
	"encoding/json"
	"fmt"
	"io"
)

// panel is one graph, number or table of the dashboard.
type panel struct {
	title   string
	kind    string // timeseries, stat or table
	unit    string
	queries []query
}

type query struct{ expr, legend string }

// row is a part of the dashboard under a heading.
type row struct {
	title  string
	panels []panel
}

func graph(title, unit string, queries ...query) panel {
	return panel{title, "timeseries", unit, queries}
}

func number(title, expr string) panel { return panel{title, "stat", "short", []query{{expr, ""}}} }

// ratio is how often something happens, and slow the time that all but a
// hundredth take.
func ratio(metric, by string) string {
	return "sum by (" + by + ") (rate(" + metric + "[$__rate_interval]))"
}

func slow(metric, selector, by string) string {
	return fmt.Sprintf("histogram_quantile(0.99, sum by (%s, le) (rate(%s_bucket%s[$__rate_interval])))", by, metric, selector)
}

// full is how much of its bound a queue of the volume has; a bound of 0 is a queue
// that is not used.
func full(metric, limit string) string {
	return metric + ofVolume + " / (" + limit + ofVolume + " > 0)"
}

const (
	ofVolume   = `{volume="$volume"}`
	ofInstance = `{instance="$instance"}`
)

var rows = []row{
	{"All volumes", []panel{
		{"Volumes by phase", "stat", "short", []query{{`max by (phase) (tak_replicated_manager_volumes)`, "{{phase}}"}}},
		number("Replicas wanted", `max(tak_replicated_manager_replicas{state="wanted"})`),
		number("Replicas ready", `max(tak_replicated_manager_replicas{state="ready"})`),
		number("Volumes that lost a replica's state", `max(tak_replicated_manager_volumes_state_lost)`),
		{"Volumes that are not whole", "table", "short", []query{{`tak_replicated_manager_volume_ready_replicas < tak_replicated_manager_volume_replicas`, ""}}},
		graph("Requests of the kernel", "reqps", query{ratio("tak_replicated_kernel_request_duration_seconds_count", "class"), "{{class}}"}),
		graph("Errors seen by applications", "reqps", query{ratio("tak_replicated_kernel_request_errors_total", "volume, error"), "{{volume}} {{error}}"}),
		graph("Busiest volumes, mutations", "reqps", query{`topk(10, sum by (volume) (rate(tak_replicated_replica_request_duration_seconds_count{class="mutation"}[$__rate_interval])))`, "{{volume}}"}),
		graph("Elections", "short", query{`sum by (volume) (increase(tak_replicated_replica_elections_won_total[$__rate_interval])) > 0`, "{{volume}}"}),
	}},
	{"Volume $volume", []panel{
		graph("Operations by hop, the slowest hundredth", "s",
			query{slow("tak_replicated_kernel_request_duration_seconds", ofVolume, "class"), "kernel {{class}}"},
			query{slow("tak_replicated_client_call_duration_seconds", ofVolume, "class"), "session {{class}}"},
			query{slow("tak_replicated_replica_request_duration_seconds", ofVolume, "class"), "coordinator {{class}}"},
			query{slow("tak_replicated_replica_commit_duration_seconds", ofVolume, "volume"), "commit"},
			query{slow("tak_replicated_replica_apply_duration_seconds", ofVolume, "replica"), "apply {{replica}}"},
			query{slow("tak_replicated_replica_journal_write_duration_seconds", ofVolume, "replica"), "journal {{replica}}"}),
		graph("Operations by hop", "reqps",
			query{ratio("tak_replicated_kernel_request_duration_seconds_count"+ofVolume, "class"), "kernel {{class}}"},
			query{ratio("tak_replicated_client_memory_answers_total"+ofVolume, "volume"), "from memory"},
			query{ratio("tak_replicated_client_call_duration_seconds_count"+ofVolume, "class"), "session {{class}}"}),
		graph("Failures", "reqps",
			query{ratio("tak_replicated_kernel_request_errors_total"+ofVolume, "error"), "application {{error}}"},
			query{ratio("tak_replicated_client_call_failures_total"+ofVolume, "failure"), "session {{failure}}"},
			query{ratio("tak_replicated_replica_request_failures_total"+ofVolume, "failure"), "coordinator {{failure}}"}),
		graph("Roles", "short", query{`tak_replicated_replica_coordinator` + ofVolume, "{{replica}}"}),
		graph("Lag", "short",
			query{`tak_replicated_replica_apply_lag_entries` + ofVolume, "not applied {{replica}}"},
			query{`tak_replicated_replica_member_lag_entries_max` + ofVolume, "member furthest behind"}),
		graph("Queues", "short",
			query{`tak_replicated_replica_proposals` + ofVolume, "proposals {{replica}}"},
			query{`tak_replicated_replica_mutations_waiting` + ofVolume, "waiting for recalls"},
			query{`tak_replicated_replica_entries_in_log` + ofVolume, "entries in the log"},
			query{`tak_replicated_replica_lock_waits` + ofVolume, "lock waits"},
			query{`tak_replicated_client_mutations` + ofVolume, "mutations {{instance}}"},
			query{`tak_replicated_client_queries` + ofVolume, "queries {{instance}}"},
			query{`tak_replicated_client_write_behind_operations` + ofVolume, "write-behind {{instance}}"}),
		graph("Queues, of their bounds", "percentunit",
			query{full("tak_replicated_replica_proposals", "tak_replicated_replica_proposals_limit"), "proposals {{replica}}"},
			query{full("tak_replicated_replica_entries_in_log", "tak_replicated_replica_entries_in_log_limit"), "entries in the log {{replica}}"},
			query{full("tak_replicated_client_mutations", "tak_replicated_client_mutations_limit"), "mutations {{instance}}"},
			query{full("tak_replicated_client_write_behind_operations", "tak_replicated_client_write_behind_operations_limit"), "write-behind {{instance}}"},
			query{full("tak_replicated_client_write_behind_bytes", "tak_replicated_client_write_behind_limit_bytes"), "write-behind bytes {{instance}}"}),
		graph("Sessions and leases", "short",
			query{`tak_replicated_replica_sessions` + ofVolume, "sessions {{replica}}"},
			query{`tak_replicated_replica_sessions_attached` + ofVolume, "attached {{replica}}"},
			query{`tak_replicated_replica_leases` + ofVolume, "leases {{replica}}"}),
		graph("Recalls and evictions", "short",
			query{ratio("tak_replicated_replica_recalls_total"+ofVolume, "replica"), "recalls {{replica}}"},
			query{ratio("tak_replicated_replica_evictions_total"+ofVolume, "replica"), "evictions {{replica}}"}),
		graph("Space", "bytes",
			query{`tak_replicated_replica_used_bytes` + ofVolume, "used {{replica}}"},
			query{`tak_replicated_replica_quota_bytes` + ofVolume + ` > 0`, "size"},
			query{`tak_replicated_replica_disk_free_bytes` + ofVolume, "disk free {{replica}}"}),
		graph("Journal", "bytes",
			query{`tak_replicated_replica_journal_bytes` + ofVolume, "{{replica}}"},
			query{`tak_replicated_replica_journal_limit_bytes` + ofVolume, "bound"}),
		graph("Age of the newest checkpoint", "s", query{`time() - (tak_replicated_replica_checkpoint_timestamp_seconds` + ofVolume + ` > 0)`, "{{replica}}"}),
		graph("Rebuild", "Bps",
			query{`deriv(tak_replicated_replica_rebuild_received_bytes` + ofVolume + `[2m])`, "received {{replica}}"},
			query{`deriv(tak_replicated_replica_rebuild_sent_bytes` + ofVolume + `[2m])`, "sent {{replica}}"}),
		graph("Rebuild, of the volume's files", "percentunit", query{`tak_replicated_replica_rebuild_sent_bytes` + ofVolume +
			` / (tak_replicated_replica_rebuilds_sending` + ofVolume + ` * tak_replicated_replica_used_bytes` + ofVolume + ` > 0)`, "sent {{replica}}"}),
		graph("Scrub", "Bps", query{ratio("tak_replicated_replica_scrub_read_bytes_total"+ofVolume, "replica"), "{{replica}}"}),
		graph("Damage", "short",
			query{`tak_replicated_replica_scrub_damaged_pages_total` + ofVolume, "found {{replica}}"},
			query{`tak_replicated_replica_scrub_mended_pages_total` + ofVolume, "mended {{replica}}"},
			query{`tak_replicated_replica_scrub_left_pages` + ofVolume, "left {{replica}}"}),
	}},
	{"Node $instance", []panel{
		graph("Replicas by phase", "short", query{`tak_replicated_host_replicas` + ofInstance, "{{phase}}"}),
		graph("Places taken", "percentunit", query{`tak_replicated_host_places` + ofInstance + ` / tak_replicated_host_places_limit` + ofInstance, "{{of}}"}),
		graph("Mounts", "short",
			query{`tak_replicated_mounts` + ofInstance, "{{volume}}"},
			query{`tak_replicated_mounts_attached` + ofInstance, "attached {{volume}}"}),
		graph("Sessions' memory", "bytes", query{`tak_replicated_client_cached_bytes` + ofInstance, "{{volume}}"}),
		graph("Journal writes, the slowest hundredth", "s", query{slow("tak_replicated_replica_journal_write_duration_seconds", ofInstance, "volume"), "{{volume}}"}),
		graph("Days until credentials expire", "short",
			query{`(tak_replicated_credential_expiry_timestamp_seconds` + ofInstance + ` - time()) / 86400`, "{{volume}} {{credential}}"}),
		graph("Calls of CSI", "reqps", query{ratio("tak_replicated_call_duration_seconds_count"+ofInstance, "method, code"), "{{method}} {{code}}"}),
		graph("Backing disk", "bytes",
			query{`tak_replicated_local_free_bytes` + ofInstance, "free"},
			query{`tak_replicated_local_requested_bytes` + ofInstance, "requested"}),
		graph("Memory of the process", "bytes", query{`process_resident_memory_bytes` + ofInstance, "resident"}),
	}},
}

// Queries are the dashboard's, as they are written there.
func Queries() (exprs []string) {
	for _, r := range rows {
		for _, p := range r.panels {
			for _, q := range p.queries {
				exprs = append(exprs, q.expr)
			}
		}
	}
	return exprs
}

type object = map[string]any

// Dashboard writes manifests/monitoring/dashboard.json, for Grafana.
func Dashboard(w io.Writer) {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	id, y := 0, 0
	add := func(p object) {
		id++
		p["id"] = id
		panels = append(panels, p)
	}
	for _, r := range rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []any{}, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		for i, p := range r.panels {
			add(p.object(source, object{"x": i % 3 * 8, "y": y + i/3*8, "w": 8, "h": 8}))
		}
		y += (len(r.panels) + 2) / 3 * 8
	}
	variable := func(name, metric string) object {
		return object{
			"name": name, "label": name, "type": "query", "datasource": source, "refresh": 2, "sort": 1,
			"query": object{"query": fmt.Sprintf("label_values(%s, %s)", metric, name), "refId": name},
		}
	}
	board := object{
		"uid": "tak-replicated", "title": "tak-replicated", "tags": []string{"storage"}, "timezone": "browser", "schemaVersion": 39,
		"refresh": "30s", "time": object{"from": "now-3h", "to": "now"}, "editable": true, "panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
			variable("volume", "tak_replicated_replica_term"), variable("instance", "tak_replicated_host_places"),
		}},
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(board); err != nil {
		panic(fmt.Sprintf("reference: encode the dashboard: %v", err))
	}
}

func (p *panel) object(source, at object) object {
	var targets []object
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend,
			"instant": p.kind != "timeseries", "range": p.kind == "timeseries", "format": map[bool]string{true: "table", false: "time_series"}[p.kind == "table"],
		})
	}
	return object{
		"type": p.kind, "title": p.title, "datasource": source, "gridPos": at, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.unit}, "overrides": []any{}},
	}
}
