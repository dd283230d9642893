package boot

import (
	"strings"

	"github.com/urfave/cli/v3"
)

// CommandText is what a command says of itself.
type CommandText struct {
	Words []string // that lead to it, without the program's name
	Usage string
	Flags []FlagText
}

// FlagText is what a flag says of itself.
type FlagText struct {
	Name    string // without dashes
	Value   string // what stands for its value; empty for a flag without one
	Env     string
	Default string // empty: none
	Usage   string
}

// Describe lists commands and those below them, in order.
func Describe(commands []*cli.Command) []CommandText { return describe(commands, nil) }

func describe(commands []*cli.Command, words []string) (all []CommandText) {
	for _, c := range commands {
		t := CommandText{Words: append(append([]string(nil), words...), c.Name), Usage: c.Usage}
		for _, f := range c.Flags {
			if d, ok := f.(cli.DocGenerationFlag); ok {
				t.Flags = append(t.Flags, describeFlag(f.Names()[0], d))
			}
		}
		all = append(append(all, t), describe(c.Commands, t.Words)...)
	}
	return all
}

func describeFlag(name string, d cli.DocGenerationFlag) FlagText {
	t := FlagText{Name: name, Usage: d.GetUsage(), Env: strings.Join(d.GetEnvVars(), ", ")}
	if d.TakesValue() {
		t.Value = "VALUE"
		if _, rest, ok := strings.Cut(t.Usage, "`"); ok {
			t.Value, _, _ = strings.Cut(rest, "`")
		}
		t.Default = strings.Trim(d.GetDefaultText(), `"`)
		if t.Default == "" {
			t.Default = strings.Trim(d.GetValue(), `"`)
		}
	}
	t.Usage = strings.ReplaceAll(t.Usage, "`", "")
	return t
}

// CommonFlags describes the flags that every serving role has, at the level that
// most log at.
func CommonFlags() []FlagText {
	var c Config
	return Describe([]*cli.Command{{Flags: Flags(&c, "info")}})[0].Flags
}
