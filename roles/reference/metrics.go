package reference

import (
	"fmt"
	"io"
	"strings"

	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/boot/metric"
	"tak-os.org/tak-replicated/roles/local"
	"tak-os.org/tak-replicated/roles/manager"
	"tak-os.org/tak-replicated/roles/mountowner"
	"tak-os.org/tak-replicated/roles/pernode"
	"tak-os.org/tak-replicated/roles/registrar"
	"tak-os.org/tak-replicated/roles/replicahost"
	"tak-os.org/tak-replicated/roles/worker"
)

// Section is a table of metrics under a heading.
type Section struct {
	Title string
	Table *metric.Table
}

// Sections are all metrics of the program.
var Sections = []Section{
	{"Replicas", &worker.Metrics},
	{"Mounts", &mountowner.Metrics},
	{"Replica host", &replicahost.Metrics},
	{"Manager", &manager.Metrics},
	{"Local driver", &local.Metrics},
	{"Per-node driver", &pernode.Metrics},
	{"Registrar", &registrar.Metrics},
	{"Calls of services", &boot.Metrics},
}

// Tables are the tables of all sections.
func Tables() (tables []*metric.Table) {
	for _, s := range Sections {
		tables = append(tables, s.Table)
	}
	return tables
}

// Metrics writes docs/metrics.md.
func Metrics(w io.Writer) {
	fmt.Fprint(w, "# Metrics\n\n<!-- Made by `go test ./roles/reference -update`; edit the tables of the roles. -->\n\n",
		"Every role serves its metrics under `/metrics` at `--metrics-addr`, beside those of Go's runtime and of\n",
		"the process (`go_…`, `process_…`). [manifests/monitoring](../manifests/monitoring/README.md) has a dashboard and\n",
		"alert rules made of them. Labels are few: `volume` is the volume's UID, `replica` the replica's name.\n",
		"A counter starts again at 0 with its process. Histograms are of seconds.\n")
	for _, s := range Sections {
		fmt.Fprintf(w, "\n## %s\n\nShown by: %s.\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n", s.Title, s.Table.Role)
		for _, d := range s.Table.Defs {
			fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", d.Full(), d.Kind, strings.Join(d.Labels, ", "), strings.ReplaceAll(d.Help, "|", `\|`))
		}
	}
}
