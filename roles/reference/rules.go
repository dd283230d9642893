package reference

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"tak-os.org/tak-replicated/roles/ctl/explain"
)

// runbook is where the runbook is published; a heading's anchor follows.
const runbook = "https://tak-os.org/tak-replicated/docs/runbook.md#"

// Rules writes manifests/monitoring/rules.yaml, a file of rules for Prometheus.
func Rules(w io.Writer) {
	fmt.Fprint(w, "# Made by `go test ./roles/reference -update`; edit roles/ctl/explain/alerts.go.\n",
		"# Prometheus reads this file itself (rule_files), or with the operator as the spec of a PrometheusRule.\n",
		"groups:\n  - name: tak-replicated\n    rules:\n")
	for _, a := range explain.Alerts() {
		fmt.Fprintf(w, "      - alert: %s\n        expr: %s\n", a.Name, strconv.Quote(a.Expr))
		if a.For != "0m" {
			fmt.Fprintf(w, "        for: %s\n", a.For)
		}
		fmt.Fprintf(w, "        labels: {severity: %s}\n        annotations:\n          summary: %s\n          description: %s\n          runbook_url: %s\n",
			a.Severity, strconv.Quote(a.Summary), strconv.Quote(a.Meaning), runbook+strings.ToLower(a.Name))
	}
}
