package roles

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/reference"
)

const configuration = "../docs/configuration.md"

// TestHelpConfiguration holds the configuration reference to the flags and to the resource definition.
func TestHelpConfiguration(t *testing.T) {
	var out bytes.Buffer
	reference.Configuration(&out, boot.Describe(Commands()), volumeSchema(t))
	if *update {
		if err := os.WriteFile(configuration, out.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(configuration)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, out.Bytes()) {
		t.Errorf("%s is not what the code says; write it anew with: go test ./roles -run TestHelp -update", configuration)
	}
	for _, want := range []string{"## replica-host\n", "| `--max-workers COUNT` | `TAK_MAX_WORKERS` | `128` |", "| `spec.replicas[].node` |", "`status.replicas[].appliedIndex`", "## ctl status\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the reference lacks %q", want)
		}
	}
	for line := range strings.Lines(out.String()) {
		if cells := strings.Split(strings.ReplaceAll(line, `\|`, ""), "|"); len(cells) > 1 && strings.TrimSpace(cells[len(cells)-2]) == "" {
			t.Errorf("nothing is said of %s", cells[1])
		}
	}
}

// volumeSchema is that of the resource definition, which is written as YAML.
func volumeSchema(t *testing.T) reference.Schema {
	t.Helper()
	text, err := os.ReadFile("../manifests/crd/" + api.Group + "_" + api.Resource + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema reference.Schema `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}
