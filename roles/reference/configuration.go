package reference

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"tak-os.org/tak-replicated/csi/replicated"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
)

// Schema is what of a resource definition's schema is shown.
type Schema struct {
	Type        string            `json:"type"`
	Description string            `json:"description"`
	Enum        []string          `json:"enum"`
	Default     any               `json:"default"`
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
	Properties  map[string]Schema `json:"properties"`
	Items       *Schema           `json:"items"`
	Required    []string          `json:"required"`
	Rules       []Rule            `json:"x-kubernetes-validations"`
}

// Rule is what the API server checks beside types.
type Rule struct {
	Message string `json:"message"`
}

// Configuration writes docs/configuration.md.
func Configuration(w io.Writer, commands []boot.CommandText, volume Schema) {
	fmt.Fprint(w, "# Configuration\n\n<!-- Made by `go test ./roles -run TestHelp -update`; edit the flags of the roles, csi/replicated and kube/api. -->\n\n",
		"Every flag of every command with its environment variable and default, what a StorageClass and a claim may say, and\n",
		"the fields of a ReplicatedVolume. A flag on the command line counts before the environment.\n",
		"`tak-replicated ROLE --help` says the same of a role.\n\n",
		"- [StorageClass](#storageclass)\n- [Claim](#claim)\n- [ReplicatedVolume](#replicatedvolume)\n- [Flags of all serving roles](#flags-of-all-serving-roles)\n")
	for _, c := range commands {
		if title := strings.Join(c.Words, " "); len(c.Flags) > 0 {
			fmt.Fprintf(w, "- [%s](#%s): %s\n", title, strings.ReplaceAll(title, " ", "-"), c.Usage)
		}
	}
	classes(w)
	fmt.Fprint(w, "\n## ReplicatedVolume\n\nGroup `", api.Group, "`, version `", api.Version, "`, in the driver's namespace; `kubectl explain` reads the same.\n",
		"The driver writes it. What an operator may write are `spec.transition` and `spec.replacement`.\n",
		"\n| field | type | meaning |\n|---|---|---|\n")
	for _, part := range []string{"spec", "status"} {
		fields(w, part, volume.Properties[part], true)
	}
	common := map[string]boot.FlagText{}
	fmt.Fprint(w, "\n## Flags of all serving roles\n")
	flags(w, boot.CommonFlags(), nil)
	for _, f := range boot.CommonFlags() {
		common[f.Name] = f
	}
	for _, c := range commands {
		if len(c.Flags) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n## %s\n\n%s.\n", strings.Join(c.Words, " "), strings.ToUpper(c.Usage[:1])+c.Usage[1:])
		flags(w, c.Flags, common)
	}
}

func classes(w io.Writer) {
	fmt.Fprintf(w, "\n## StorageClass\n\nOf provisioner `%s`. Values are strings; anything else is refused by name (INVALID_ARGUMENT).\n\n", api.DriverReplicated)
	fmt.Fprint(w, "| parameter | values | default | meaning |\n|---|---|---|---|\n")
	fmt.Fprintf(w, "| `%s` | `\"1\"` to `\"4\"` | `\"%d\"` | full copies, each on a node of its own |\n", replicated.ParameterReplicas, replicated.DefaultReplicas)
	fmt.Fprintf(w, "| `%s` | name of a StorageClass | none: it is needed | what copies are kept on: a class of `%s` with `WaitForFirstConsumer` and `Delete` |\n", replicated.ParameterBackingClass, api.DriverLocal)
	fmt.Fprintf(w, "| `%s` | `%s` | not enforced | the requested size is what `df` shows, and ENOSPC comes at it |\n", replicated.ParameterQuota, replicated.QuotaEnforced)
	fmt.Fprint(w, "\n`reclaimPolicy` may be `Delete` or `Retain`. There are no mount options, `allowedTopologies`, fsType or expansion.\n",
		"Classes of `", api.DriverLocal, "` have no parameters; they need `WaitForFirstConsumer`.\n")
	fmt.Fprintf(w, "\n## Claim\n\n| annotation | values | meaning |\n|---|---|---|\n| `%s` | `\"1\"` to `\"4\"` | copies of this volume, in place of the class's; read once, when it is made |\n", api.AnnotationReplicas)
	fmt.Fprintf(w, "\nAccess modes are `ReadWriteMany` and `ReadWriteOnce`; `volumeMode` is `Filesystem`. Without a size it is %d GiB.\n", replicated.DefaultBytes>>30)
}

// fields writes a row for each field below path.
func fields(w io.Writer, path string, s Schema, needed bool) {
	fmt.Fprintf(w, "| `%s` | %s | %s |\n", path, kind(s), meaning(s, needed))
	below := s
	if s.Items != nil {
		path, below = path+"[]", *s.Items
	}
	for _, name := range slices.Sorted(maps.Keys(below.Properties)) {
		fields(w, path+"."+name, below.Properties[name], slices.Contains(below.Required, name))
	}
}

func kind(s Schema) string {
	switch {
	case len(s.Enum) > 0:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case s.Type == "":
		return "quantity"
	case s.Items != nil && s.Items.Type == "object":
		return "list"
	case s.Items != nil:
		return "list of " + kind(*s.Items)
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("%s, %g to %g", s.Type, *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		return fmt.Sprintf("%s, at least %g", s.Type, *s.Minimum)
	}
	return s.Type
}

func meaning(s Schema, needed bool) string {
	text := []string{}
	if d := strings.Join(strings.Fields(s.Description), " "); d != "" {
		text = append(text, d)
	}
	if s.Items != nil && s.Items.Description != "" && len(s.Items.Properties) > 0 && s.Description == "" {
		text = append(text, strings.Join(strings.Fields(s.Items.Description), " "))
	}
	if s.Default != nil {
		text = append(text, fmt.Sprintf("Default: `%v`.", s.Default))
	} else if !needed {
		text = append(text, "Optional.")
	}
	for _, r := range s.Rules {
		text = append(text, "*Checked: "+r.Message+".*")
	}
	return strings.ReplaceAll(strings.Join(text, " "), "|", `\|`)
}

// flags writes a table without those that are as in common.
func flags(w io.Writer, all []boot.FlagText, common map[string]boot.FlagText) {
	fmt.Fprint(w, "\n| flag | environment | default | meaning |\n|---|---|---|---|\n")
	beside := false
	for _, f := range all {
		if common[f.Name] == f {
			beside = true
			continue
		}
		value, def := f.Name, "–"
		if f.Value != "" {
			value += " " + f.Value
		}
		if f.Default != "" {
			def = "`" + f.Default + "`"
		}
		fmt.Fprintf(w, "| `--%s` | `%s` | %s | %s |\n", value, f.Env, def, strings.ReplaceAll(f.Usage, "|", `\|`))
	}
	if beside {
		fmt.Fprint(w, "\nBeside them, the [flags of all serving roles](#flags-of-all-serving-roles).\n")
	}
}
