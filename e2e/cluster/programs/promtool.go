package programs

// Promtool tests rules for Prometheus. It is built without service discovery, which
// is most of it.
const Promtool Program = "promtool"

func init() {
	recipes[Promtool] = recipe{"promtool", "github.com/prometheus/prometheus/cmd/promtool", "", "remove_all_sd"}
}
