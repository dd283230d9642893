package reference

import (
	"bytes"
	"flag"
	"io"
	"os"
	"testing"

	"tak-os.org/tak-replicated/roles/ctl/explain"
)

var update = flag.Bool("update", false, "write the documents anew")

// TestDocuments holds the generated documents to the code.
func TestDocuments(t *testing.T) {
	for path, write := range map[string]func(io.Writer){
		"../../docs/metrics.md":                     Metrics,
		"../../manifests/monitoring/rules.yaml":     Rules,
		"../../manifests/monitoring/dashboard.json": Dashboard,
	} {
		var out bytes.Buffer
		write(&out)
		if *update {
			if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, out.Bytes()) {
			t.Errorf("%s is not what the code says; write it anew with: go test ./roles/reference -update", path)
		}
	}
}

// TestConventions holds every table to Prometheus' conventions, and names to one
// meaning.
func TestConventions(t *testing.T) {
	seen := map[string]string{}
	for _, s := range Sections {
		for _, fault := range s.Table.Faults() {
			t.Errorf("%s: %s", s.Title, fault)
		}
		for _, d := range s.Table.Defs {
			if other := seen[d.Name]; other != "" {
				t.Errorf("%s is in %s and in %s", d.Name, other, s.Title)
			}
			seen[d.Name] = s.Title
		}
	}
}

// TestQueriesNameMetrics holds dashboard and alerts to the tables.
func TestQueriesNameMetrics(t *testing.T) {
	exprs := Queries()
	for _, a := range explain.Alerts() {
		exprs = append(exprs, a.Expr)
	}
	if len(exprs) < 50 {
		t.Fatalf("only %d queries", len(exprs))
	}
	for _, expr := range exprs {
		for _, fault := range QueryFaults(expr) {
			t.Errorf("%s: %s", expr, fault)
		}
	}
}

func TestQueryFaults(t *testing.T) {
	for expr, faults := range map[string]int{
		`tak_replicated_mounts{volume="a"}`:                                                         0,
		`tak_replicated_no_such_metric`:                                                             1,
		`tak_replicated_mounts{phase="a"}`:                                                          1,
		`sum by (phase) (tak_replicated_mounts)`:                                                    1,
		`tak_replicated_replica_commit_duration_seconds`:                                            1, // a histogram has no series of that name
		`rate(tak_replicated_replica_commit_duration_seconds_count[5m])`:                            0,
		`sum by (volume, le) (tak_replicated_replica_commit_duration_seconds_bucket{replica!="x"})`: 0,
	} {
		if got := QueryFaults(expr); len(got) != faults {
			t.Errorf("%s: %q", expr, got)
		}
	}
}

// TestAlerts asks each alert for what its reader needs.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range explain.Alerts() {
		if a.Severity != "critical" && a.Severity != "warning" {
			t.Errorf("%s: severity %q", a.Name, a.Severity)
		}
		if a.Summary == "" || a.Check == "" || a.Do == "" {
			t.Errorf("%s lacks a summary, a check or an action", a.Name)
		}
		if !bytes.Contains(text, []byte("\n### "+a.Name+"\n")) {
			t.Errorf("the runbook has no entry %s", a.Name)
		}
	}
}

// TestEveryAlertIsTested asks for two tests of each alert: that it fires, and that
// it does not.
func TestEveryAlertIsTested(t *testing.T) {
	text, err := os.ReadFile("../../manifests/monitoring/rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range explain.Alerts() {
		if n := bytes.Count(text, []byte(`{alertname="`+a.Name+`", alertstate="firing"}`)); n != 2 {
			t.Errorf("%s has %d tests", a.Name, n)
		}
	}
}
